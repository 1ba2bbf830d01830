"""Runs LiteLLM's router on a simulated clock, under the Python of LiteLLM's own environment, which has no Headgate.

It communicates in lines of JSON. Each line of standard input is a job; for a job the script asks the benchmark on
standard output what the provider does at a simulated time: which request begins, whether it is admitted, what the
answer is. So the provider is the benchmark's own. Only these parts of LiteLLM are replaced: the clock, threads (calls
run in the caller) and the transport below its HTTP client.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import random
import selectors
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_EPOCH: Final = 1_700_000_040.0
"""Wall-clock time at the start of a job: a full minute, since LiteLLM counts by minutes."""

_LEAST_JUMP_S: Final = 1e-6

_NUMBER: Final = "x-bench-request"
"""Header with the benchmark's number of the request."""

Ask = Callable[..., dict[str, Any]]
"""Asks the benchmark a question and returns its answer."""


class _JumpingSelector(selectors.DefaultSelector):
    """Skips the time for which a loop would sleep."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now, or else advance the time."""
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("deadlock: all tasks wait, and no timer is set")
        if not ready and timeout:
            self.now += max(timeout, _LEAST_JUMP_S)
        return ready


class _SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in simulated time, without threads."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the simulated seconds since the start."""
        return self._jumping.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override] # noqa: ARG002
        """Call a function at once."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised in the caller that awaits it
            done.set_exception(error)
        return done


async def _called_at_once(func: Callable[..., Any], *args: Any, abandon_on_cancel: bool = False, **_: Any) -> Any:  # noqa: ARG001
    """Replace `anyio.to_thread.run_sync`: the simulated loop would not wait for a thread."""
    return func(*args)


def _set_clocks(loop: _SimulatedLoop) -> None:
    """Make LiteLLM read the simulated clock wherever it counts minutes or a time to live."""

    def now() -> datetime:
        return datetime.fromtimestamp(_EPOCH + loop.time(), UTC)

    time.time = lambda: _EPOCH + loop.time()
    for name, module in list(sys.modules.items()):
        if name.startswith("litellm") and hasattr(module, "get_utc_datetime"):
            module.get_utc_datetime = now  # type: ignore[attr-defined]


def _transport(httpx: Any, ask: Ask) -> Any:
    """Return the transport that simulates the provider below LiteLLM's client."""

    class Transport(httpx.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            number = int(request.headers[_NUMBER])
            taken = ask("take", number)
            await asyncio.sleep(taken["s"])
            told = ask("told", number)
            body = json.dumps(_refusal() if told["refused"] else _completion(number, told)).encode()
            headers = {"content-type": "application/json"} | told["headers"]
            return httpx.Response(429 if told["refused"] else 200, headers=headers, content=body, request=request)

    return Transport()


def _refusal() -> dict[str, Any]:
    return {"error": {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}}


def _completion(number: int, told: dict[str, Any]) -> dict[str, Any]:
    prompt, reply = told["prompt"], told["reply"]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(_EPOCH),
        "model": "model",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply},
    }


async def _calls(router: Any, group: str, job: dict[str, Any], ask: Ask, jitter: random.Random) -> None:
    """Keep one request of a group at the router: a new one after an answer, the same one after a failure."""
    failed = importlib.import_module("openai").APIError
    while True:
        begun = ask("begin", group)
        headers = {_NUMBER: str(begun["number"])}
        messages = [{"role": "user", "content": "word " * begun["prompt"]}]
        failures = 0
        while True:
            try:
                await router.acompletion(model="model", messages=messages, extra_headers=headers)
                break
            except (failed, ValueError):  # the router has given up, by itself or after refusals of the provider
                ask("failed", begun["number"])
                pause_s = min(job["longest_pause_s"], job["first_pause_s"] * 2 ** min(failures, 10))
                failures += 1
                await asyncio.sleep(pause_s * jitter.uniform(0.5, 1.5))


async def _drive(job: dict[str, Any], ask: Ask) -> None:
    litellm: Any = importlib.import_module("litellm")
    httpx: Any = importlib.import_module("httpx")
    litellm.aclient_session = httpx.AsyncClient(transport=_transport(httpx, ask))
    deployment = {"model": "openai/model", "api_key": "none", "api_base": "http://provider.invalid/v1"}
    models = [{"model_name": "model", "litellm_params": deployment | job["limits"]}]
    router = litellm.Router(model_list=models, **job["router"])
    jitter = random.Random(job["seed"])
    calls = [
        asyncio.create_task(_calls(router, group, job, ask, jitter))
        for _ in range(job["waiting"])
        for group in job["groups"]
    ]
    await asyncio.wait(calls, timeout=job["seconds"], return_when=asyncio.FIRST_EXCEPTION)
    for call in calls:
        if call.done():
            call.result()
        call.cancel()


def _play_and_leave(job: dict[str, Any], lines: TextIO, out: TextIO) -> None:
    """Run one job, and exit this process without waiting for LiteLLM's background work."""
    status = 1
    try:
        _play(job, lines, out)
        status = 0
    except Exception:  # noqa: BLE001 - the benchmark reads the traceback
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _play(job: dict[str, Any], lines: TextIO, out: TextIO) -> None:
    loop = _SimulatedLoop()
    asyncio.set_event_loop(loop)
    _set_clocks(loop)
    random.seed(job["seed"])  # LiteLLM's own jitter

    def ask(what: str, about: str | int) -> dict[str, Any]:
        print(json.dumps([what, about, loop.time()]), file=out, flush=True)
        answer: dict[str, Any] = json.loads(lines.readline())
        return answer

    loop.run_until_complete(_drive(job, ask))


def main() -> None:
    """Play the jobs, each in a fork of this process, so that LiteLLM keeps no state between jobs."""
    lines, out = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep LiteLLM's own output out of our lines
    # Read prices from files, not the network; skip redaction: nothing here is secret, and it takes most of the time.
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DISABLE_REDACT_SECRETS": "true"}
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    with suppress(ImportError):  # its dependencies are not installed
        importlib.import_module("litellm.litellm_core_utils.custom_logger_registry")  # else every fork imports it
    importlib.import_module("anyio.to_thread").run_sync = _called_at_once  # type: ignore[attr-defined]
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # scanning LiteLLM's million objects is useless
    version = importlib.import_module("importlib.metadata").version("litellm")
    print(json.dumps(["version", version, 0.0]), file=out, flush=True)
    while line := lines.readline():
        child = os.fork()
        if not child:
            _play_and_leave(json.loads(line), lines, out)
        _, status = os.waitpid(child, 0)
        print(json.dumps(["end", status, 0.0]), file=out, flush=True)


if __name__ == "__main__":
    main()
