"""vLLM over its own HTTP API, including its sleep mode, whose routes exist only in its development mode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from headgate.elastic.engines.calls import (
    LATE,
    MAYBE_DONE,
    at_most,
    document,
    metric_samples,
    model_names,
    no_engine_of_its_kind,
    require_idle,
)
from headgate.elastic.engines.engine import EngineAnswer, EngineFacts, Outgoing
from headgate.elastic.engines.http import HttpEngine
from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.elastic.worker import EngineLoad

_RUNNING: Final = "vllm:num_requests_running"
_WAITING: Final = "vllm:num_requests_waiting"
_USAGE: Final = "vllm:kv_cache_usage_perc"
_CACHE: Final = "vllm:cache_config_info"

_TO_WAKE: Final = ("weights", "kv_cache")
"""One after the other: the KV cache takes the memory that the weights leave. vLLM skips a tag that is awake."""

_NOT_FOUND: Final = 404
_DEVELOPMENT: Final = "Start it with the environment variable VLLM_SERVER_DEV_MODE=1 and with --enable-sleep-mode."


class VLLMEngine(HttpEngine):
    """One vLLM server, started with `VLLM_SERVER_DEV_MODE=1` and `--enable-sleep-mode`. Implements `Engine`.

    It reports whether it sleeps, so no record is needed. `sleep` and `wake` run one at a time.
    """

    kind = "vllm"

    async def check(self) -> EngineFacts:
        """Make sure that this is vLLM, can sleep and accepts our key; return what it reports."""
        with no_engine_of_its_kind("vLLM", self.name):
            version = document(await self._http.get("/version"))
            if not isinstance(version.get("version"), str):
                raise EngineError("GET /version reports no version", is_final=True)
            await self._look_for_sleep_mode()
            models = model_names(await self._http.get("/v1/models"))
            load = await self.load()
        return EngineFacts(models, load.slots, load.token_slots, load.is_asleep)

    async def load(self) -> EngineLoad:
        """Return a reading summed over all its engine cores, asleep or awake."""
        is_asleep = await self._is_asleep()
        reply = await self._http.get("/metrics", once_after=LATE)
        found = metric_samples(reply.body.decode("utf-8", "replace"), (_RUNNING, _WAITING, _USAGE, _CACHE))
        if not reply.is_ok or not found[_RUNNING]:
            raise EngineError(
                f"{reply.call} does not report {_RUNNING}; was it started with --disable-log-stats?", is_final=True
            )
        room = sum(_tokens_of(labels) for labels, _ in found[_CACHE]) or None
        usages = [value for _, value in found[_USAGE]]
        return EngineLoad(
            running=round(sum(value for _, value in found[_RUNNING])),
            waiting=round(sum(value for _, value in found[_WAITING])),
            slots=self._slots,
            tokens=round(room * sum(usages) / len(usages)) if room and usages else None,
            token_slots=room,
            is_asleep=is_asleep,
        )

    async def sleep(self) -> None:
        """Move the weights to host memory and discard the KV cache."""
        async with self._turn:
            load = await self.load()
            if load.is_asleep:
                return
            require_idle(f"the engine at {self.name}", load)
            # `wait` instead of the default `abort`, so that requests that others send just now are not lost.
            await self._move("/sleep?level=1&mode=wait")
            if not await self._is_asleep():
                raise EngineError(f"the engine at {self.name} accepted the call to sleep, and is still awake")

    async def wake(self) -> None:
        """Wake the weights and the KV cache, and return once it answers requests."""
        async with self._turn:
            if not await self._is_asleep():
                return
            for tag in _TO_WAKE:
                await self._move(f"/wake_up?tags={tag}")
            if await self._is_asleep():
                await self._move("/wake_up")  # something else was put to sleep, too, not by us
            if await self._is_asleep():
                raise EngineError(f"the engine at {self.name} was woken, and is still asleep")
            (await self._http.post("/reset_prefix_cache")).checked()
            (await self._http.get("/health")).checked()

    async def load_weights(self, path: str) -> None:
        """Load the weights of another checkpoint of the model in place; the engine must be awake and idle."""
        async with self._turn:
            asked = {"method": "reload_weights", "kwargs": {"weights_path": path}}
            for route, body in (("/collective_rpc", asked), ("/reset_prefix_cache", None)):
                reply = await self._http.post(route, body, within_s=self._config.start_timeout, once_after=MAYBE_DONE)
                reply.checked()

    async def abort(self, request_id: str) -> None:
        """Abort a request; the engine still returns what it has generated so far."""
        used = self._ids.of(request_id)
        if used is None:
            return
        # The ids that vLLM derives from ours, for a chat and for a completion; an empty list would mean all requests.
        known = [f"chatcmpl-{used}", f"cmpl-{used}", f"cmpl-{used}-0", used]
        (await self._http.post("/abort_requests", {"request_ids": known})).checked(_NOT_FOUND)

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        """Send a request, and yield its answer."""
        with self._ids.use(request.request_id) as used:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "x-request-id"}
            headers["X-Request-Id"] = used
            async with self._http.answer(replace(request, headers=headers)) as answer:
                yield answer

    async def _is_asleep(self) -> bool:
        told = document(await self._http.get("/is_sleeping", once_after=LATE)).get("is_sleeping")
        if not isinstance(told, bool):
            raise EngineError(f"the engine at {self.name} does not report whether it sleeps", is_final=True)
        return told

    async def _move(self, path: str) -> None:
        # Moving weights takes long. A call that timed out is not retried: the next command sees the actual state.
        reply = await self._http.post(path, within_s=self._config.start_timeout, once_after=MAYBE_DONE)
        if not reply.is_ok:
            raise reply.error(is_final=reply.status == _NOT_FOUND)

    async def _look_for_sleep_mode(self) -> None:
        sleeping = await self._http.get("/is_sleeping")
        if sleeping.status == _NOT_FOUND:
            paused = await self._http.get("/is_paused")
            raise self._sleepless("VLLM_SERVER_DEV_MODE=1" if paused.status == _NOT_FOUND else "--enable-sleep-mode")
        settings = await self._settings()
        if _within(settings, "model_config", "enable_sleep_mode") is False:
            raise self._sleepless("--enable-sleep-mode")
        slots = _within(settings, "scheduler_config", "max_num_seqs")
        self._slots = at_most(self._slots, slots if isinstance(slots, int) else None)

    def _sleepless(self, lacks: str) -> NotAnEngineError:
        said = f"the vLLM engine at {self.name} was started without {lacks}, and cannot be put to sleep"
        return NotAnEngineError(said, next_step=_DEVELOPMENT)

    async def _settings(self) -> Mapping[str, Any]:
        reply = await self._http.get("/server_info?config_format=json")
        settings = document(reply).get("vllm_config") if reply.is_ok else None
        return settings if isinstance(settings, Mapping) else {}


def _within(settings: Mapping[str, Any], section: str, name: str) -> object:
    found = settings.get(section)
    return found.get(name) if isinstance(found, Mapping) else None


def _tokens_of(labels: Mapping[str, str]) -> int:
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdecimal() and size.isdecimal() else 0
