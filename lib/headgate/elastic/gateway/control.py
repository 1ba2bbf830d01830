"""The control API: the status of a pool, and an operator's commands to it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from headgate.core import Clock
from headgate.core.audit import ANYBODY, record_change
from headgate.core.errors import InvalidInputError
from headgate.elastic.errors import UnknownWorkerError
from headgate.elastic.gateway.access import Callers
from headgate.elastic.gateway.status import GatewayStatus
from headgate.elastic.gateway.wire import json_answer
from headgate.elastic.service import ElasticService
from headgate.net.aiohttp_server import read_body
from headgate.net.request_flaws import validated
from headgate.net.tokens import Scope

LONGEST_WAIT_S: Final = 300.0

_SETTLE_S: Final = 0.2
"""Delay before a change is reported, to combine it with further ones: a busy pool changes with every request."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
B = TypeVar("B", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ScaleIn(_Body):
    """Number of workers to keep awake; None for as many as the policy wants."""

    workers: int | None = Field(ge=1)


class WakeAllIn(_Body):
    """How long to keep all workers awake."""

    for_s: float = Field(gt=0, le=7 * 86_400, allow_inf_nan=False)


class NothingIn(_Body):
    """An empty body."""


class StatusQuery(BaseModel):
    """How long to wait for a change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wait: float = Field(default=0.0, ge=0, le=LONGEST_WAIT_S, allow_inf_nan=False)


class Control:
    """The routes under `/elastic/v1`. Owned by one gateway. Every change returns the status after it."""

    def __init__(
        self, service: ElasticService, status: Callable[[], GatewayStatus], callers: Callers, clock: Clock
    ) -> None:
        self._service = service
        self._status_now = status
        self._callers = callers
        self._clock = clock
        self._deadlines: set[asyncio.Timeout] = set()

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        route = app.router
        route.add_get("/elastic/v1/status", self._status)
        pool, steer = self._service, self._steering
        route.add_post("/elastic/v1/scale", steer("scale", ScaleIn, lambda told, _: pool.scale(told.workers)))
        route.add_post("/elastic/v1/wake-all", steer("wake all", WakeAllIn, lambda told, _: pool.wake_all(told.for_s)))
        route.add_post("/elastic/v1/resume", steer("resume", NothingIn, lambda _, __: pool.resume()))
        for what, act in (("drain", pool.drain), ("wake", pool.wake), ("unpin", pool.unpin)):
            steering = steer(what, NothingIn, self._of_worker(act))
            route.add_post(f"/elastic/v1/workers/{{worker}}/{what}", steering)

    def hurry(self) -> None:
        """Answer all requests that wait for a change, after a change outside the pool."""
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now)

    async def _status(self, http: web.Request) -> web.StreamResponse:
        await self._callers.caller(http.headers, Scope.READ)
        query = validated(StatusQuery, dict(http.query), "query")
        seen = http.headers.get("If-None-Match")
        if query.wait:
            await self._wait(query.wait, seen)
        status = self._status_now()
        if (mark := mark_of(status)) == seen:
            return web.Response(status=304, headers={"ETag": mark})
        return self._shown(status)

    async def _wait(self, wait_s: float, seen: str | None) -> None:
        """Return after `wait_s`, or earlier on a change: any change, or with `seen` a status that differs from it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s) as deadline:
                self._deadlines.add(deadline)
                try:
                    await self._changed(seen)
                finally:
                    self._deadlines.discard(deadline)

    async def _changed(self, seen: str | None) -> None:
        while self._service.status().is_open:
            if seen is not None and mark_of(self._status_now()) != seen:
                return
            await self._service.changed()
            await self._clock.sleep(_SETTLE_S)
            if seen is None:
                return

    def _of_worker(self, act: Callable[[str], None]) -> Callable[[NothingIn, web.Request], None]:
        return lambda _, http: act(self._worker(http.match_info["worker"]))

    def _worker(self, named: str) -> str:
        """Return the id of a worker by its id, or by a part of it that no other has, such as its port.

        Raises:
            UnknownWorkerError: no worker matches, or several do.
        """
        workers = [worker.worker_id for worker in self._service.status().workers]
        if named in workers:
            return named
        meant = [worker for worker in workers if named in worker]
        if len(meant) == 1:
            return meant[0]
        said = (
            f"{named[:100]!r} is part of the names of {', '.join(meant)}" if meant else f"no worker is {named[:100]!r}"
        )
        raise UnknownWorkerError(f"{said}; the pool {self._service.name} has {', '.join(workers)}")

    def _kept(self, named: str | None) -> str:
        """Return what currently applies to a worker or, without one, to the pool; for the audit log."""
        now = self._service.status()
        if named is None:
            return f"{now.desired.workers} workers: {now.desired.because}"
        worker = now.worker(self._worker(named))
        return "by load" if worker is None or worker.pin is None else f"kept {worker.pin}"

    def _steering(self, what: str, body: type[B], act: Callable[[B, web.Request], None]) -> Handler:
        async def handle(http: web.Request) -> web.StreamResponse:
            caller = await self._callers.operator(http.headers)
            wanted = validated(body, await _json(http), "body")
            named = http.match_info.get("worker")
            thing = f"{self._service.name} {self._worker(named)}" if named else self._service.name
            before = self._kept(named)
            act(wanted, http)
            has_token = caller.name or self._callers.needs_token
            who = f"token {caller.name}".rstrip() if has_token else ANYBODY
            after = self._kept(named) if body is NothingIn else wanted.model_dump_json()
            await asyncio.to_thread(record_change, f"elastic {what}", thing, before=before, after=after, who=who)
            return self._shown(self._status_now())

        return handle

    def _shown(self, status: GatewayStatus) -> web.Response:
        answer = json_answer(status.as_json())
        answer.headers.update({"ETag": mark_of(status), "Cache-Control": "no-store"})
        return answer


def mark_of(status: GatewayStatus) -> str:
    """Return the ETag of a status: two statuses that differ only in durations have the same."""
    pool = status.pool
    workers = [replace(worker, since_s=0.0, read_s=None, retry_s=None) for worker in pool.workers]
    counts = replace(pool.counts, awake_s=0.0)
    shown = (workers, pool.running, pool.waiting, pool.desired, counts, status.admission, status.is_draining)
    return f'"{zlib.crc32(repr(shown).encode("utf-8", "replace")):08x}"'


async def _json(http: web.Request) -> Any:
    """Return the parsed body; an empty body counts as an empty object."""
    body = await read_body(http.clone(client_max_size=64 * 1024))
    try:
        return orjson.loads(body) if body else {}
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"the body must be JSON ({error})", next_step="Send the request again.") from None
