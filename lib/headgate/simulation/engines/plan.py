"""Configuration of a fake engine: its API, size and speed, and the flags that it was started with."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

from headgate.core import errors

Api = Literal["sglang", "vllm"]

WEIGHTS: Final = "weights"
KV_CACHE: Final = "kv_cache"


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """One fake engine.

    With the defaults it answers at once; `FakeEngine.hold` lets a test decide when an answer continues.

    Attributes:
        api: whose HTTP API it speaks.
        slots: most requests that it runs at once (`--max-running-requests`, `--max-num-seqs`).
        token_room: tokens that its KV cache has room for.
        reply_tokens: length of an answer, if the request allows it.
        prompt_token_s: seconds per token of a prompt.
        token_s: seconds per generated token.
        release_s: seconds that a call to release memory takes.
        resume_s: seconds to resume the memory of the weights; other memory takes none.
        has_memory_saver: SGLang's `--enable-memory-saver`; without it a release succeeds but frees nothing.
        has_weights_backup: SGLang's `--enable-weights-cpu-backup`; without it released weights are lost.
        has_sleep_mode: vLLM's `--enable-sleep-mode`; without it sleeping frees nothing, either.
        has_dev_mode: vLLM's `VLLM_SERVER_DEV_MODE=1`, which adds the routes that change an engine.
        api_key: required API key, if given.
        admin_key: SGLang's `--admin-api-key`.
    """

    api: Api = "sglang"
    model: str = "fake-model"
    slots: int = 8
    token_room: int = 100_000
    reply_tokens: int = 8
    prompt_token_s: float = 0.0
    token_s: float = 0.0
    release_s: float = 0.0
    resume_s: float = 0.0
    has_memory_saver: bool = True
    has_weights_backup: bool = True
    has_sleep_mode: bool = True
    has_dev_mode: bool = True
    api_key: str | None = None
    admin_key: str | None = None

    def __post_init__(self) -> None:
        if self.api not in get_args(Api):
            raise errors.InvalidInputError(f"api must be one of {', '.join(get_args(Api))} (got {self.api!r})")
        for name in ("slots", "token_room", "reply_tokens"):
            if (count := getattr(self, name)) < 1:
                raise errors.InvalidInputError(f"{name} must be >= 1 (got {count})")
        for name in (each.name for each in fields(self) if each.name.endswith("_s")):
            if not (0 <= (seconds := getattr(self, name)) < math.inf):
                raise errors.InvalidInputError(f"{name} must be >= 0 and finite (got {seconds})")
