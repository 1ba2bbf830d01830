"""What a fake engine is: its API, its size, its speed, and the flags that it was started with."""

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

    The defaults answer at once; `FakeEngine.hold` lets a test decide when an answer goes on.

    Attributes:
        api: whose HTTP API it speaks.
        slots: requests that it runs at most at once (`--max-running-requests`, `--max-num-seqs`).
        token_room: tokens that its KV cache has room for.
        reply_tokens: length of an answer where the request allows it.
        prompt_token_s: seconds for each token of a prompt.
        token_s: seconds for each generated token.
        release_s: seconds that a call which releases memory takes.
        resume_s: seconds that taking the memory of the weights again takes; other memory takes none.
        has_memory_saver: SGLang's `--enable-memory-saver`; without it a release frees nothing, and nobody is told.
        has_weights_backup: SGLang's `--enable-weights-cpu-backup`; without it weights are lost when they are released.
        has_sleep_mode: vLLM's `--enable-sleep-mode`; without it sleeping frees nothing, either.
        has_dev_mode: vLLM's `VLLM_SERVER_DEV_MODE=1`, which adds the routes that change an engine.
        api_key: asked for, where given.
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
