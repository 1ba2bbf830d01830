"""Engines that this process starts from weights on its own machine, on GPUs that they hold while awake."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.core import Launch
from headgate.elastic.engines.calls import ConnectionLostError, NobodyListensError
from headgate.elastic.engines.engine import EngineAnswer, EngineFacts, Outgoing
from headgate.elastic.engines.http import EngineHttp
from headgate.elastic.engines.process import EngineProcess
from headgate.elastic.engines.records import ReleasedTags
from headgate.elastic.engines.sglang import SGLangEngine
from headgate.elastic.engines.vllm import VLLMEngine
from headgate.elastic.engines.weights import size_of, weights_here
from headgate.elastic.errors import EngineError, sentence
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad

if TYPE_CHECKING:
    from headgate.elastic.service import Machine

_log = logging.getLogger("headgate.elastic")

_TO_SLEEP: Final[Mapping[str, Mapping[str, bool]]] = {
    "vllm": {"enable-sleep-mode": True},
    "sglang": {"enable-memory-saver": True, "enable-weights-cpu-backup": True},
}
"""Flags that let an engine free its GPU while keeping its process; giving one of them as false disables that."""

_DEVELOPMENT: Final = {"VLLM_SERVER_DEV_MODE": "1"}


class LocalEngine:
    """An engine of this machine. Implements `Engine`; owned by a pool, and ended with it.

    vLLM and SGLang keep their process while they sleep, with their weights in host memory, and wake within seconds,
    even if other engines used the GPU meanwhile; if memory runs short, the process is ended. All other engines are
    ended to sleep and started again to wake.

    An engine that is kept when its pool ends can serve the next pool, whose weights it loads in place.
    """

    def __init__(self, name: str, launch: Launch, config: ElasticConfig, devices: Machine) -> None:
        to_sleep = _TO_SLEEP.get(launch.program, {})
        options = {**to_sleep, **{flag.lstrip("-").replace("_", "-"): on for flag, on in launch.options.items()}}
        self._given = launch
        self._keeps_process = bool(to_sleep) and all(options[flag] is True for flag in to_sleep)
        self.name = name
        self._config = config
        self._devices = devices
        self._process = EngineProcess(replace(launch, options=options))
        self._on: Sequence[str] = ()
        self._http: EngineHttp | None = None
        self._api: SGLangEngine | VLLMEngine | None = None
        self._loaded = ""
        self._running = 0
        self._is_asleep = True
        self._failures = self._to_spare = 0
        """Starts that failed even with sleeping neighbours ended, and failures to go until these are ended again."""

    @property
    def kind(self) -> str:
        """Its program."""
        return self._process.launch.program

    async def check(self) -> EngineFacts:
        """Return its known facts, without starting it."""
        return EngineFacts((self._process.launch.name,), self._process.launch.slots, is_asleep=self._is_asleep)

    async def load(self) -> EngineLoad:
        """Return a reading; an engine that has ended counts as asleep."""
        if self._is_asleep or not self._process.is_up:
            self._is_asleep = True
            return EngineLoad(slots=self._process.launch.slots, is_asleep=True)
        if self._api is not None:
            return await self._api.load()
        return EngineLoad(running=self._running, slots=self._process.launch.slots)

    async def sleep(self) -> None:
        """Free its GPU; if it cannot sleep with its weights in host memory, end its process."""
        self._is_asleep = True
        if self._api is not None and self._keeps_process and self._process.is_up:
            try:
                await self._devices.make_room(await asyncio.to_thread(size_of, self._process.weights))
                await self._api.sleep()
            except EngineError as error:
                _log.warning("%s is ended, as it could not be put to sleep: %s", self.name, sentence(error))
            else:
                self._devices.sleeps(self.name, self._on, self._end)
                return
        await self._end()

    async def wake(self) -> None:
        """Start it, or wake its process, and return once it answers."""
        self._devices.has_ended(self.name)
        held, others = self._devices.of(self.name), await self._devices.beside(self.name, self._devices.most_asleep)
        try:
            await self._awaken(held)
        except EngineError as error:
            if error.is_final or not others:
                raise
            if self._to_spare:
                self._to_spare -= 1
                raise
            _log.warning("%s starts again, after ending the engines asleep on its GPU: %s", self.name, sentence(error))
            await self._devices.beside(self.name, 0)
            self._failures += 1
            self._to_spare = 2**self._failures - 1
            await self._awaken(held)
            self._devices.most_asleep = min(self._devices.most_asleep, others - 1)
        self._is_asleep = False
        self._failures = self._to_spare = 0

    async def _awaken(self, held: Sequence[str]) -> None:
        if self._api is not None and self._process.is_up and list(held) == list(self._on):
            try:
                await self._api.wake()
                if self._loaded != self._process.launch.weights:
                    self._process.weights = await weights_here(self._process.launch.weights)
                    await self._api.load_weights(self._process.weights)
                    self._loaded = self._process.launch.weights
            except BaseException:
                await self._end()  # a half-woken engine is useless
                raise
        else:
            await self._end()
            await self._start(held)

    async def abort(self, request_id: str) -> None:
        """Abort a request; engines without an abort call see its connection close."""
        if self._api is not None:
            await self._api.abort(request_id)

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        """Send a request, and yield its answer."""
        if self._is_asleep or self._http is None:
            raise EngineError(f"{self.name} sleeps")
        self._running += 1
        try:
            async with (self._api or self._http).answer(request) as answer:
                yield answer
        except (ConnectionLostError, NobodyListensError) as error:
            raise EngineError(await self._process.last_words() or error.message) from None
        finally:
            self._running -= 1

    async def close(self) -> None:
        """End it, or leave it asleep for the next pool."""
        if self._devices.keeps_engines and self._keeps_process:
            await self.sleep()
        else:
            await self._end()

    @property
    def is_kept(self) -> bool:
        """Whether its process still sleeps, so that another pool can use it."""
        return self._is_asleep and self._process.is_up

    def can_serve(self, launch: Launch) -> bool:
        """Return whether `launch` would start the same engine, apart from the weights."""
        return self.is_kept and replace(self._given, weights=launch.weights) == launch

    def serve_next(self, name: str, launch: Launch) -> None:
        """Become an engine of another pool, if `can_serve` allows; it loads the new weights when it wakes."""
        self.name, self._given = name, launch
        self._process.launch = replace(self._process.launch, weights=launch.weights)

    async def _start(self, devices: Sequence[str]) -> None:
        environ = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        await self._process.wake(environ | (_DEVELOPMENT if self._process.launch.program == "vllm" else {}))
        self._on = devices
        self._loaded = self._process.launch.weights
        http = self._http = EngineHttp(self._process.address, self._config)
        if self._process.launch.program == "vllm":
            self._api = VLLMEngine(http, self._config, slots=self._process.launch.slots)
        elif self._process.launch.program == "sglang":
            # The record is kept in the folder of the process, as another engine may have used this port before.
            released = ReleasedTags(http.address, Path(self._process.folder))
            self._api = SGLangEngine(http, self._config, released, slots=self._process.launch.slots)

    async def _end(self) -> None:
        self._devices.has_ended(self.name)
        http, self._http, self._api = self._http, None, None
        if http is not None:
            await http.close()
        await self._process.sleep()
