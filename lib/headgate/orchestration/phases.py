"""The phases of a flow run: each is a named task, so that the graph of the run shows how long each part took."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from prefect import task
from prefect.assets import Asset, AssetProperties, materialize
from prefect.cache_policies import NO_CACHE
from prefect.client.base import ServerType, determine_server_type

from headgate.core.events import CampaignStopping
from headgate.core.tasks import cancelled
from headgate.telemetry import Handler, Recorded

R = TypeVar("R")

_NOT_IN_A_KEY: Final = re.compile(r"[^A-Za-z0-9._:/@-]")


async def in_phase(name: str, work: Callable[[], Awaitable[R]], *, asset: str = "", what: str = "") -> R:
    """Run a part of a flow run as a task called `name`, and return its result.

    Servers that support assets list `asset`, the URL or path that the task writes to, described by `what`.
    """
    made: Callable[[Any], Any] = task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)
    if asset and shows_assets():
        key = Asset(key=asset_key(asset), properties=AssetProperties(name=what or name))
        made = materialize(key, name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)

    async def phase() -> R:
        return await work()

    result: R = await made(phase)()
    return result


async def until_drained(sample: Awaitable[R], begun: asyncio.Event, *, name: str, store: str) -> R:
    """Run `sample` as two phases: `name` until `begun` says that it takes on no more work, then `drain`.

    `sample` takes samples into `store`, a URL or a path, and returns when everything that it started has ended.
    """
    working = asyncio.ensure_future(sample)
    draining = asyncio.ensure_future(begun.wait())

    async def sampling() -> None:
        await asyncio.wait({working, draining}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()  # an error before draining belongs to this phase

    async def drained() -> R:
        return await working

    try:
        await in_phase(name, sampling, asset=store, what="samples")
        if not begun.is_set():
            return working.result()
        return await in_phase("drain", drained)
    finally:
        await cancelled(draining, working)


class DrainSink:
    """A sink of a campaign's events that reports when draining begins. Used by one event loop."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        """Set when the campaign begins to drain."""
        self._loop = asyncio.get_running_loop()
        self.handlers: Mapping[type[Any], Handler] = {CampaignStopping: self._stopping}

    def close(self) -> None:
        """See `Sink`."""

    def _stopping(self, _: Recorded[CampaignStopping]) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)


def shows_assets() -> bool:
    """Return whether the server lists assets: Prefect Cloud does; elsewhere they would be events that no UI shows."""
    return determine_server_type() is ServerType.CLOUD


def asset_key(place: str) -> str:
    """Return the key of the asset at a URL or a path; characters that Prefect refuses become dashes."""
    url = place if "://" in place else f"file://{Path(place).expanduser().absolute()}"
    return _NOT_IN_A_KEY.sub("-", url)[:512]
