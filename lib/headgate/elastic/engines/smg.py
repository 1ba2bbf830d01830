"""An engine behind an SGLang gateway (`smg`): one of its workers while it is awake, and none before it sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from headgate.core import Secret
from headgate.elastic.engines.calls import EngineBusyError, KeyRefusedError, document
from headgate.elastic.engines.engine import Engine, EngineAnswer, EngineFacts, Outgoing
from headgate.elastic.engines.http import EngineHttp
from headgate.elastic.engines.records import same_for_all
from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad

_WORKERS: Final = "/workers"
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_IDLE_READINGS: Final = 2
"""A request that the gateway had chosen the engine for may arrive after one."""

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class SmgRouter:
    """The list of workers of one gateway, over its REST API (smg 1.13)."""

    def __init__(self, http: EngineHttp, config: ElasticConfig) -> None:
        self.address = http.address
        self._http = http
        self._config = config

    async def status(self, url: str) -> str | None:
        """Return how the worker of this address stands, `ready` if it gets requests; None where there is none."""
        worker = await self._worker(url)
        return str(worker.get("status", "ready" if worker.get("is_healthy") else "not ready")) if worker else None

    async def add(self, url: str, api_key: Secret) -> None:
        """Add a worker, and return once the gateway sends it requests.

        Raises:
            EngineError: the gateway does not, within `start_timeout`.
        """
        # Its own drain is a fixed pause and not until the engine is idle: it is told to make none.
        wanted: dict[str, Any] = {"url": url, "health": {"drain_settle_secs": 0}}
        if api_key:
            wanted["api_key"] = api_key.reveal()
        (await self._http.post(_WORKERS, wanted)).checked(_CONFLICT)  # it is there, or is being added
        await self._until(url, "ready", self._config.start_timeout)

    async def remove(self, url: str) -> None:
        """Take a worker out, and return once the gateway sends it no further request."""
        worker = await self._worker(url)
        if worker is None:
            return
        (await self._http.call("DELETE", f"{_WORKERS}/{worker['id']}", is_admin=True)).checked(_NOT_FOUND)
        await self._until(url, None, self._config.drain_timeout)

    async def check(self) -> None:
        """Make sure that this is such a gateway.

        Raises:
            NotAnEngineError: it is not, or refuses the key.
        """
        try:
            told = document(await self._http.get(_WORKERS, is_admin=True))
        except KeyRefusedError as error:
            raise NotAnEngineError(error.message, next_step="Give the gateway's key as router_key.") from None
        except EngineError as error:
            if not error.is_final:
                raise
            raise NotAnEngineError(f"{self.address} does not answer as an SGLang gateway: {error.message}") from None
        if not isinstance(told.get("workers"), list):
            raise NotAnEngineError(f"{self.address} does not answer as an SGLang gateway: it lists no workers")

    async def close(self) -> None:
        """Give up connections; legal twice."""
        await self._http.close()

    async def _worker(self, url: str) -> Mapping[str, Any] | None:
        listed = document(await self._http.get(_WORKERS, is_admin=True)).get("workers", [])
        return next((each for each in listed if same_for_all(str(each.get("url", ""))) == same_for_all(url)), None)

    async def _until(self, url: str, wanted: str | None, within_s: float) -> None:
        """Return once a worker stands so; the gateway tells nobody of changes, so it is asked."""
        pause_s, status = _FIRST_PAUSE_S, None
        try:
            async with asyncio.timeout(within_s):
                while (status := await self.status(url)) != wanted:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        except TimeoutError:
            want = "not take it as a worker" if wanted else "not let go of it"
            raise EngineError(
                f"the gateway at {self.address} did {want} within {within_s:g} s: {url} is {status}"
            ) from None


class SmgEngine:
    """An engine that is a gateway's worker while it is awake. Implements `Engine`.

    The users of the gateway send it requests beside the pool's, so what it has is known from the engine alone.
    """

    kind = "smg"

    def __init__(self, engine: Engine, router: SmgRouter, config: ElasticConfig, api_key: Secret | None = None) -> None:
        self._engine = engine
        self._router = router
        self._config = config
        self._api_key = api_key or Secret("")

    @property
    def name(self) -> str:
        """The engine's address."""
        return self._engine.name

    async def check(self) -> EngineFacts:
        """Make sure of both, the engine and the gateway; the gateway's list is put right where it is not."""
        await self._router.check()
        facts = await self._engine.check()
        # A request that a gateway sends to a sleeping engine would kill it.
        await (self.unroute() if facts.is_asleep else self.route())
        return facts

    async def load(self) -> EngineLoad:
        """Return a reading of the engine: the gateway's requests are in it."""
        return await self._engine.load()

    async def route(self) -> None:
        """Have the gateway send requests here; returns once it may. Idempotent."""
        await self._router.add(self.name, self._api_key)

    async def unroute(self) -> None:
        """Have the gateway send no further request here; those it has sent go on. Idempotent."""
        await self._router.remove(self.name)

    async def sleep(self) -> None:
        """Take it out of the gateway, wait until it has nothing left, and put it to sleep.

        Raises:
            EngineError: it still has requests after `drain_timeout`, and is in the gateway again; or it failed.
        """
        await self.unroute()
        if not await self._gets_idle():
            await self.route()
            raise EngineBusyError(
                f"the engine at {self.name} was busy for {self._config.drain_timeout:g} s after its removal"
            )
        try:
            await self._engine.sleep()
        except EngineBusyError:
            await self.route()
            raise

    async def wake(self) -> None:
        """Wake it, and add it to the gateway."""
        await self._engine.wake()
        await self.route()

    async def abort(self, request_id: str) -> None:
        """Have it let go of a request of the pool's."""
        await self._engine.abort(request_id)

    def answer(self, request: Outgoing) -> AbstractAsyncContextManager[EngineAnswer]:
        """Send a request to the engine itself."""
        return self._engine.answer(request)

    async def close(self) -> None:
        """Give up connections; legal twice. The engine stays in the gateway's list as it is."""
        await self._router.close()
        await self._engine.close()

    async def _gets_idle(self) -> bool:
        idle = 0
        try:
            async with asyncio.timeout(self._config.drain_timeout):
                while idle < _IDLE_READINGS:
                    load = await self._engine.load()
                    idle = idle + 1 if load.is_idle else 0
                    if load.is_asleep:
                        return True
                    if idle < _IDLE_READINGS:
                        await asyncio.sleep(self._config.confirm_interval)
        except TimeoutError:
            return False
        return True
