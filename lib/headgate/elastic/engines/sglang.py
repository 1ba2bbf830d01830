"""SGLang over its own HTTP API: sleeps by releasing memory tags, whose state it does not report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final

from headgate.elastic.engines.calls import (
    LATE,
    MAYBE_DONE,
    ConnectionLostError,
    EngineBusyError,
    NobodyListensError,
    UnansweredError,
    at_most,
    document,
    members,
    model_names,
    no_engine_of_its_kind,
    require_idle,
    total,
    with_field,
)
from headgate.elastic.engines.engine import EngineAnswer, EngineFacts, Outgoing
from headgate.elastic.engines.http import EngineHttp, HttpEngine
from headgate.elastic.engines.records import ReleasedTags
from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad

_TO_SLEEP: Final = ("kv_cache", "weights")
_TO_WAKE: Final = ("weights", "kv_cache")
"""The weights first: the KV cache takes the memory that is left."""

_WITHOUT_BACKUP: Final = ("kv_cache",)
"""Weights that are released without a copy in host memory are lost: the engine would wake and answer nonsense."""

_ONE_LIFE: Final = ("random_seed", "version", "model_path", "tp_size", "dp_size", "nccl_port", "pid")
"""Fields that distinguish one process of a server from the next; unless given, the seed is drawn at its start."""

_NOT_READY: Final = frozenset({503})
_GATEWAY_TIMEOUT: Final = frozenset({504})
"""A proxy timed out on a call that it had delivered."""

_READY_PAUSE_S: Final = 0.25
_log = logging.getLogger("headgate.elastic")


class SGLangEngine(HttpEngine):
    """One SGLang server, 0.5.23 or later, started with `--enable-memory-saver`. Implements `Engine`.

    Unless it also has `--enable-weights-cpu-backup`, it keeps its weights while it sleeps, and frees only its KV cache.

    `sleep` and `wake` run one at a time. No request is sent while any memory is released: it would crash the engine.
    """

    kind = "sglang"

    def __init__(
        self, http: EngineHttp, config: ElasticConfig, released: ReleasedTags, *, slots: int | None = None
    ) -> None:
        super().__init__(http, config, slots=slots)
        self._released = released
        self._is_proven = True
        """Whether it has generated a token since its memory was last changed."""
        self._to_sleep: tuple[str, ...] = _TO_SLEEP

    async def check(self) -> EngineFacts:
        """Make sure that this is SGLang, can free its memory and accepts our keys; return what it reports."""
        with no_engine_of_its_kind("SGLang", self.name):
            info = await self._meet()
            if info.get("enable_memory_saver") is not True:
                raise NotAnEngineError(
                    f"the SGLang engine at {self.name} was started without --enable-memory-saver: "
                    "it would say that it sleeps, and keep its memory"
                )
            if self._to_sleep is _WITHOUT_BACKUP:
                _log.warning(
                    "The SGLang engine at %s was started without --enable-weights-cpu-backup: "
                    "it frees its KV cache when it sleeps, and keeps its weights",
                    self.name,
                )
            # No request has this id, so the call has no effect except that the admin key is checked.
            await self._http.post("/abort_request", {"rid": "headgate-checks-the-key"})
            models = model_names(await self._http.get("/v1/models"))
            load = await self.load()
        return EngineFacts(models, load.slots, load.token_slots, load.is_asleep)

    async def load(self) -> EngineLoad:
        """Return a reading summed over all data-parallel ranks; it needs no memory, so it does not wake the engine."""
        with self._noticing_death():
            if self._released:
                await self._meet()  # a restarted engine has all its memory
            reply = await self._http.get("/v1/loads?include=core", once_after=LATE)
        ranks = members(reply, "loads")
        is_asleep = all(tag in self._released for tag in self._to_sleep)
        return EngineLoad(
            running=total(ranks, "num_running_reqs") or 0,
            waiting=total(ranks, "num_waiting_reqs") or 0,
            slots=at_most(self._slots, total(ranks, "max_running_requests")),
            tokens=total(ranks, "num_used_tokens"),
            token_slots=total(ranks, "max_total_num_tokens"),
            is_asleep=is_asleep,
            is_half_asleep=bool(self._released) and not is_asleep,
        )

    async def sleep(self) -> None:
        """Flush the cache, then release the KV cache and the weights; only if idle, as a busy engine would crash.

        Weights that would be lost are kept.
        """
        async with self._turn:
            with self._noticing_death():
                await self._meet()
                if all(tag in self._released for tag in self._to_sleep):
                    return
                require_idle(f"the engine at {self.name}", await self.load())
                flushed = await self._http.post("/flush_cache")
                if not flushed.is_ok:
                    raise EngineBusyError(f"the engine at {self.name} is busy: it does not flush its cache")
                for tag in self._to_sleep:
                    if tag not in self._released:
                        await self._change("/release_memory_occupation", tag, is_released=True)
                require_idle(f"the engine at {self.name}", await self.load())

    async def wake(self) -> None:
        """Resume the weights and the KV cache, wait until the engine is ready, and let it generate one token."""
        async with self._turn:
            with self._noticing_death():
                await self._meet()
                for tag in _TO_WAKE:
                    if tag in self._released:
                        await self._change("/resume_memory_occupation", tag, is_released=False)
                await self._get_ready()
                if not self._is_proven:
                    await self._warm_up()

    async def load_weights(self, path: str) -> None:
        """Load the weights of another checkpoint of the model in place; the engine must be awake and idle."""
        async with self._turn:
            self._is_proven = False
            reply = await self._http.post(
                "/update_weights_from_disk",
                {"model_path": path},
                within_s=self._config.start_timeout,
                once_after=MAYBE_DONE,
                takes=_GATEWAY_TIMEOUT,
            )
            reply.checked()
            await self._warm_up()

    async def abort(self, request_id: str) -> None:
        """Abort a request; the engine still returns what it has generated so far."""
        if (used := self._ids.of(request_id)) is not None:
            await self._http.post("/abort_request", {"rid": used})

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        """Send a request, and yield its answer."""
        if self._released:
            raise EngineError(f"the engine at {self.name} sleeps; a request would kill it")
        with self._ids.use(request.request_id) as used:
            body = with_field(request.body, "rid", used)
            async with self._http.answer(replace(request, body=body)) as answer:
                yield answer

    async def _meet(self) -> Mapping[str, Any]:
        """Return what the server reports about itself, and record which process of it answers."""
        reply = await self._http.get("/server_info", once_after=LATE)
        info = document(reply)
        if "enable_memory_saver" not in info:
            raise EngineError(f"{reply.call} was answered by something that is not an SGLang engine", is_final=True)
        self._to_sleep = _TO_SLEEP if info.get("enable_weights_cpu_backup", True) else _WITHOUT_BACKUP
        self._released.met(" ".join(f"{name}={info[name]}" for name in _ONE_LIFE if name in info))
        return info

    async def _change(self, path: str, tag: str, *, is_released: bool) -> None:
        """Release or resume the memory of one tag; the change is recorded before it is requested."""
        self._is_proven = False
        self._released.set(tag, is_released=is_released)
        try:
            # Moving weights takes long, and a second call meanwhile would crash the engine.
            reply = await self._http.post(
                path,
                {"tags": [tag]},
                within_s=self._config.start_timeout,
                once_after=MAYBE_DONE,
                takes=_GATEWAY_TIMEOUT,
            )
            reply.checked(*_GATEWAY_TIMEOUT)
        except UnansweredError:
            raise
        except ConnectionLostError:
            self._released.died()
            raise
        except EngineError:
            self._released.set(tag, is_released=not is_released)
            raise
        reply.checked()

    async def _get_ready(self) -> None:
        """Return once the server reports that it is ready; after a restart it may still be loading its weights."""
        try:
            async with asyncio.timeout(self._config.start_timeout):
                while (await self._http.get("/ready", takes=_NOT_READY)).status in _NOT_READY:  # noqa: ASYNC110 - no events
                    await asyncio.sleep(_READY_PAUSE_S)
        except TimeoutError:
            late_s = self._config.start_timeout
            raise UnansweredError(f"the engine at {self.name} was not ready within {late_s:g} s") from None

    async def _warm_up(self) -> None:
        once = {"input_ids": [1], "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        (await self._http.call("POST", "/generate", once)).checked()
        self._is_proven = True

    @contextmanager
    def _noticing_death(self) -> Iterator[None]:
        try:
            yield
        except NobodyListensError:
            self._released.died()
            raise
