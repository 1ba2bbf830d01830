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


class SmgEngine:
    """An engine that is a gateway's worker while it is awake. Implements `Engine`.

    The users of the gateway send it requests beside the pool's, so what it has is known from the engine alone.
    """

    kind = "smg"

    def __init__(self, engine: Engine, router: EngineHttp, config: ElasticConfig, api_key: Secret) -> None:
        """Take the gateway over its REST API (smg 1.13), and the key with which it asks the engine."""
        self._engine = engine
        self._router = router
        self._config = config
        self._api_key = api_key

    @property
    def name(self) -> str:
        """The engine's address."""
        return self._engine.name

    async def check(self) -> EngineFacts:
        """Make sure of both, the engine and the gateway; the gateway's list is put right where it is not."""
        await self._check_router()
        facts = await self._engine.check()
        # A request that a gateway sends to a sleeping engine would kill it.
        await (self.unroute() if facts.is_asleep else self.route())
        return facts

    async def load(self) -> EngineLoad:
        """Return a reading of the engine: the gateway's requests are in it."""
        return await self._engine.load()

    async def route(self) -> None:
        """Have the gateway send requests here, and return once it does. Idempotent.

        Raises:
            EngineError: the gateway does not, within `start_timeout`.
        """
        # Its own drain is a fixed pause and not until the engine is idle: it is told to make none.
        wanted: dict[str, Any] = {"url": self.name, "health": {"drain_settle_secs": 0}}
        if self._api_key:
            wanted["api_key"] = self._api_key.reveal()
        (await self._router.post(_WORKERS, wanted)).checked(_CONFLICT)  # it is there, or is being added
        await self._until("ready", self._config.start_timeout)

    async def unroute(self) -> None:
        """Have the gateway send no further request here; those it has sent go on. Idempotent."""
        worker = await self._worker()
        if worker is None:
            return
        (await self._router.call("DELETE", f"{_WORKERS}/{worker['id']}", is_admin=True)).checked(_NOT_FOUND)
        await self._until(None, self._config.drain_timeout)

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

    async def _check_router(self) -> None:
        """Make sure that the gateway is one; raises NotAnEngineError where it is not, or refuses the key."""
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
        """Return the engine as the gateway lists it; None where it does not."""
        listed = document(await self._router.get(_WORKERS, is_admin=True)).get("workers", [])
        return next(
            (each for each in listed if same_for_all(str(each.get("url", ""))) == same_for_all(self.name)), None
        )

    async def _until(self, wanted: str | None, within_s: float) -> None:
        """Return once the engine is listed as `wanted`, None for not at all; the gateway tells nobody of changes."""
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
            want = "not take it as a worker" if wanted else "not let go of it"
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
