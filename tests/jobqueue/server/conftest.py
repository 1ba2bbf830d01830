"""A job queue's server: within the test's own process, and listening on a real port."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from headgate.core import Secret, SystemClock
from headgate.jobqueue import LedgerWriter
from headgate.jobqueue.server import RunningServer, ServerSettings, Service, build_app, running_server
from headgate.jobqueue.stores import MemoryStore
from headgate.net.authority import Authority
from headgate.net.token_stores import MemoryTokens
from headgate.net.tokens import Scope, new_token

JOB = {"id": "17", "team": "team_a", "task": "radio", "instance": "3", "pool": "team_a"}
SERVER = {"pool": "team_a", "host": "server1.example.com", "port": 8080}


@dataclass
class Queue:
    """A server in this process, and what tests ask it for again and again."""

    http: httpx.AsyncClient
    app: FastAPI
    writer: LedgerWriter
    tokens: MemoryTokens
    store: MemoryStore

    @property
    def settings(self) -> ServerSettings:
        return self.app.state.service.settings

    def set(self, **changes: Any) -> None:
        """Change settings that are read at each request."""
        service = self.app.state.service
        service.settings = service.settings.model_copy(update=changes)

    def token(self, *scopes: Scope, **bounds: Any) -> dict[str, str]:
        """Make a token and return the header that carries it."""
        token, text = new_token("test", scopes, now=SystemClock().wall(), **bounds)
        self.tokens.add(token, forget_before=0)
        return bearer(text)

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return await self.http.post(path, json=body, **more)

    async def submit(self, *jobs: dict[str, Any], **more: Any) -> None:
        answer = await self.post("/v1/jobs", {"jobs": list(jobs)}, **more)
        assert answer.status_code == 200, answer.text

    async def register(self, *servers: dict[str, Any], **more: Any) -> None:
        answer = await self.post("/v1/resources", {"resources": list(servers)}, **more)
        assert answer.status_code == 200, answer.text

    async def claim(self, worker: str = "w", **more: Any) -> list[dict[str, Any]]:
        answer = await self.post("/v1/claims", {"worker": worker, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["jobs"]

    async def claimed(self, worker: str = "w", **more: Any) -> dict[str, Any]:
        """Claim one job and return its lease, as bodies name it."""
        (one,) = await self.claim(worker, **more)
        return {"lease_id": one["lease"]["lease_id"], "epoch": one["lease"]["epoch"]}


async def in_line(writer: LedgerWriter, *, claims: int = 0, servers: int = 0) -> None:
    """Return once exactly so many claims and reservations stand in line; the writer tells nobody when that changes."""
    while True:
        now = await writer.do(lambda ledger, _: (ledger.waiting_claims, len(ledger.servers.lines)))
        if now == (claims, servers):
            return
        await asyncio.sleep(0)


def bearer(text: Secret) -> dict[str, str]:
    return {"Authorization": f"Bearer {text.reveal()}"}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def writer(store: MemoryStore) -> Iterator[LedgerWriter]:
    writer = LedgerWriter(store, SystemClock(), "test")
    writer.open()
    yield writer
    writer.close()


@pytest.fixture
async def queue(writer: LedgerWriter, store: MemoryStore) -> AsyncIterator[Queue]:
    tokens = MemoryTokens()
    # Its time passes with every look at it: a token is known as soon as the test has made it.
    passing = itertools.count(0.0, 1.0)
    authority = Authority(tokens, needs_no_tokens=True, rate=None, monotonic=lambda: next(passing))
    service = Service(writer, store.reader(), authority)
    app = build_app(service)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield Queue(http, app, writer, tokens, store)
    service.close()


@pytest.fixture
def live_settings(tmp_path: Path) -> ServerSettings:
    return ServerSettings(
        database=f"sqlite:///{tmp_path}/queue.db", port=0, statistics_every_s=0, health_check_every_s=0, stop_s=5
    )


@pytest.fixture
async def live(live_settings: ServerSettings) -> AsyncIterator[RunningServer]:
    async with running_server(live_settings) as server:
        yield server


@pytest.fixture
async def client(live: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=live.url, timeout=30) as http:
        yield http
