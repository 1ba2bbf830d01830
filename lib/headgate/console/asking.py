"""Asks each kind of source for what the screens show, read-only."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx

from headgate.config import Settings
from headgate.console.sources import Asked, Source, Sources
from headgate.core.errors import HeadgateError, NotFoundError, UnauthorizedError
from headgate.telemetry import MonitorClient

_TIMEOUT_S: Final = 5.0
_MOST_DEAD: Final = 100
_ELASTIC_TOKEN: Final = "HEADGATE_ELASTIC_TOKEN"  # noqa: S105 - the name of a variable


@asynccontextmanager
async def opened_sources(
    settings: Settings, *, runs: Sequence[str] = (), jobqueues: Sequence[str] = (), elastic: Sequence[str] = ()
) -> AsyncIterator[Sources]:
    """Give the sources at these addresses, polled while somebody watches.

    Args:
        settings: hold the tokens that they ask for: `monitor_token` and `jobqueue_token`.
        runs: monitoring APIs of campaigns.
        jobqueues: servers of job queues.
        elastic: gateways of elastic pools; their token is in HEADGATE_ELASTIC_TOKEN.
    """
    async with AsyncExitStack() as stack:
        found: list[Source] = []
        for address in runs:
            monitor = await stack.enter_async_context(MonitorClient(settings, address))
            found.append(RunSource(monitor))
        for address in jobqueues:
            client = await stack.enter_async_context(_client(address, settings.jobqueue_token.get_secret_value()))
            found.append(QueueSource(address.rstrip("/"), client))
        for address in elastic:
            client = await stack.enter_async_context(_client(address, os.environ.get(_ELASTIC_TOKEN, "")))
            found.append(ElasticSource(address.rstrip("/").removesuffix("/v1"), client))
        sources = Sources(found)
        await stack.enter_async_context(sources.polled())
        yield sources


class RunSource(Source):
    """A campaign, by its monitoring API."""

    def __init__(self, monitor: MonitorClient) -> None:
        super().__init__("run", monitor.address, self._status)
        self.monitor = monitor

    async def _status(self) -> Asked:
        said = await self.monitor.document("/status")
        try:
            said["controls"] = await self.monitor.controls()
        except NotFoundError:
            said["controls"] = None
        return said, _figures_of_run(said)


class QueueSource(Source):
    """A job queue, by its API."""

    def __init__(self, address: str, client: httpx.AsyncClient) -> None:
        super().__init__("jobqueue", address, self._state)
        self.client = client

    async def _state(self) -> Asked:
        said = await answered(self.client, "/v1/statistics")
        said["dead"] = (await answered(self.client, f"/v1/dead-jobs?limit={_MOST_DEAD}"))["jobs"]
        said["servers"] = (await answered(self.client, "/v1/resources"))["resources"]
        return said, {f"jobs {state}": count for state, count in said["jobs"].items()}


class ElasticSource(Source):
    """An elastic pool, by its gateway."""

    def __init__(self, address: str, client: httpx.AsyncClient) -> None:
        super().__init__("elastic", address, self._state)
        self.client = client

    async def _state(self) -> Asked:
        said = await answered(self.client, "/elastic/v1/status")
        said["name"] = said["pool"]["name"]
        demand = said["pool"]["demand"]
        waiting = demand["waiting"] + said["admission"]["waiting"]
        return said, {"awake": demand["active"] + demand["starting"], "running": demand["running"], "waiting": waiting}


def _client(address: str, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    verify = httpx.create_ssl_context()  # with SSL_CERT_FILE, which `trust_env` would leave out
    return httpx.AsyncClient(
        base_url=address.rstrip("/").removesuffix("/v1"), headers=headers, timeout=_TIMEOUT_S, trust_env=False,
        verify=verify,
    )  # fmt: skip


async def answered(client: httpx.AsyncClient, path: str, body: object = None) -> dict[str, Any]:
    """Return the document that a server answers to a GET, or to a POST of `body`.

    Raises:
        HeadgateError: it refuses, in its own words.
        httpx.HTTPError: it does not answer.
    """
    answer = await (client.get(path) if body is None else client.post(path, json=body))
    try:
        document = answer.json()
    except ValueError:
        document = None
    document = document if isinstance(document, dict) else {}
    if answer.is_success and document:
        return document
    said = str(document.get("detail") or f"HTTP {answer.status_code}")
    kind = UnauthorizedError if answer.status_code == httpx.codes.UNAUTHORIZED else HeadgateError
    raise kind(f"{client.base_url} answered: {said}", next_step=str(document.get("next_step") or ""))


def _figures_of_run(said: dict[str, Any]) -> dict[str, float | None]:
    """Return the figures of a campaign whose history is kept."""
    figures: dict[str, float | None] = {}
    if "workers" in said and "queue" in said:
        figures = {
            "samples per minute": said["workers"]["finished_last_minute"],
            "workers busy": said["workers"]["active"],
            "queue": said["queue"]["size"],
            "spooled": said["spooled"],
            "lag": max((pair["lag_s"] for pair in said["pairs"]), default=0.0),
        }
    for key in said.get("requests", ()):
        name = key_of(key)
        for what in ("limit", "in_flight", "waiters", "cooldown_s"):
            figures[f"{name} {what}"] = key[what]
    return figures


def key_of(request: dict[str, Any]) -> str:
    """Return the name of a request key: its provider, model and domain."""
    return f"{request['provider']} {request['model']} {request['domain']}"
