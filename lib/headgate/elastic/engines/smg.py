"""An engine behind an SGLang gateway (`smg`): added to its workers when it wakes, removed before it sleeps."""

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
"""Idle readings required: a request that the gateway had already routed here may arrive after the first."""

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class SmgEngine:
    """An engine that is a gateway's worker while it is awake. Implements `Engine`.

    It gets requests from the gateway's users in addition to the pool's, so only the engine itself knows its load.
    """

    kind = "smg"

    def __init__(self, engine: Engine, router: EngineHttp, config: ElasticConfig, api_key: Secret) -> None:
        """Use a gateway through its REST API (smg 1.13); `api_key` is the key that the gateway sends to the engine."""
        self._engine = engine
        self._router = router
        self._config = config
        self._api_key = api_key

    @property
    def name(self) -> str:
        """The engine's address."""
        return self._engine.name

    async def check(self) -> EngineFacts:
        """Check both the engine and the gateway, and correct the gateway's list of workers if needed."""
        await self._check_router()
        facts = await self._engine.check()
        # A request that the gateway sends to a sleeping engine would crash it.
        await (self.unroute() if facts.is_asleep else self.route())
        return facts

    async def load(self) -> EngineLoad:
        """Return a reading of the engine, which includes the gateway's requests."""
        return await self._engine.load()

    async def route(self) -> None:
        """Add the engine to the gateway, and return once the gateway sends it requests. Idempotent.

        Raises:
            EngineError: the gateway does not, within `start_timeout`.
        """
        # The gateway's own drain is a fixed pause that does not wait until the engine is idle, so it is set to 0.
        wanted: dict[str, Any] = {"url": self.name, "health": {"drain_settle_secs": 0}}
        if self._api_key:
            wanted["api_key"] = self._api_key.reveal()
        (await self._router.post(_WORKERS, wanted)).checked(_CONFLICT)  # already listed, or being added
        await self._until("ready", self._config.start_timeout)

    async def unroute(self) -> None:
        """Remove the engine from the gateway; requests already sent continue. Idempotent."""
        worker = await self._worker()
        if worker is None:
            return
        (await self._router.call("DELETE", f"{_WORKERS}/{worker['id']}", is_admin=True)).checked(_NOT_FOUND)
        await self._until(None, self._config.drain_timeout)

    async def sleep(self) -> None:
        """Remove it from the gateway, wait until it is idle, and put it to sleep.

        Raises:
            EngineError: it still has requests after `drain_timeout`, and was added to the gateway again; or it failed.
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
        """Abort a request of the pool."""
        await self._engine.abort(request_id)

    def answer(self, request: Outgoing) -> AbstractAsyncContextManager[EngineAnswer]:
        """Send a request to the engine itself."""
        return self._engine.answer(request)

    async def close(self) -> None:
        """Close the connections; legal twice. The gateway's list of workers is left as it is."""
        await self._router.close()
        await self._engine.close()

    async def _check_router(self) -> None:
        """Check that the router is a gateway; raises NotAnEngineError if it is not, or refuses the key."""
        address = self._router.address
        try:
            told = document(await self._router.get(_WORKERS, is_admin=True))
        except KeyRefusedError as error:
            raise NotAnEngineError(error.message, next_step="Give the gateway's key as router_key.") from None
        except EngineError as error:
            if not error.is_final:
                raise
            raise NotAnEngineError(f"{address} does not answer as an SGLang gateway: {error.message}") from None
        if not isinstance(told.get("workers"), list):
            raise NotAnEngineError(f"{address} does not answer as an SGLang gateway: it lists no workers")

    async def _worker(self) -> Mapping[str, Any] | None:
        """Return the engine's entry in the gateway's list; None if it is not listed."""
        listed = document(await self._router.get(_WORKERS, is_admin=True)).get("workers", [])
        return next(
            (each for each in listed if same_for_all(str(each.get("url", ""))) == same_for_all(self.name)), None
        )

    async def _until(self, wanted: str | None, within_s: float) -> None:
        """Poll until the engine is listed as `wanted`, or with None not at all; the gateway sends no events."""
        pause_s, status = _FIRST_PAUSE_S, None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    worker = await self._worker()
                    status = worker and str(worker.get("status", "ready" if worker.get("is_healthy") else "not ready"))
                    if status == wanted:
                        return
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        except TimeoutError:
            want = "not add it as a worker" if wanted else "not remove it"
            raise EngineError(
                f"the gateway at {self._router.address} did {want} within {within_s:g} s: {self.name} is {status}"
            ) from None

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
