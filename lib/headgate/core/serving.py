"""How a model is served from weights: how its engines start, how many there may be, and their priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from headgate.core.errors import InvalidInputError

Program = Literal["llama.cpp", "vllm", "sglang", "command"]
PROGRAMS: Final[tuple[str, ...]] = get_args(Program)

ENGINE_PRIORITY: Final = 1.0
"""Priority of engines, below that of every role of a training."""

_WEIGHTS: Final = {"llama.cpp": "a GGUF file", "vllm": "a folder or name", "sglang": "a folder or name"}


@dataclass(frozen=True, slots=True)
class Launch:
    """How an engine is started. The same on every node; node-specific values are inserted at the start.

    Attributes:
        program: the inference server whose command line it is.
        weights: file or folder, as the program takes it, at the same path on every node, or an S3 URL; empty for a
            command that names its own.
        name: name of the model in requests.
        gpus: number of GPUs that the program spreads the model over.
        slots: requests that it runs concurrently.
        options: further flags, `max-model-len: 4096` becoming `--max-model-len 4096` and `enable-x: true` `--enable-x`.
        command: command line for the program `command`; `{port}`, `{weights}` and `{name}` are replaced.
        environ: environment variables in addition to the node's.
        start_s: seconds that it may take until it answers.
    """

    program: Program
    weights: str = ""
    name: str = "model"
    gpus: int = 0
    slots: int = 8
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    command: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 600.0

    def __post_init__(self) -> None:
        if self.program not in PROGRAMS:
            raise InvalidInputError(f"an engine must be one of {', '.join(PROGRAMS)} (got {self.program!r})")
        started = self.command.partition(" ")[0]  # what follows may hold a key
        if (self.program == "command") != bool(self.command):
            said = f"takes no command (got {started!r:.200})" if self.command else "needs a command that starts it"
            raise InvalidInputError(f"an engine of {self.program} {said}")
        if self.program in _WEIGHTS and not self.weights:
            raise InvalidInputError(f"an engine of {self.program} needs its weights, {_WEIGHTS[self.program]}")
        if self.command and "{port}" not in self.command:
            raise InvalidInputError(f"the command of an engine must take its {{port}} (got {started!r:.200})")


@dataclass(frozen=True, slots=True)
class Serving:
    """How Headgate serves a model: engines that it starts, wakes when samples are due, and puts to sleep.

    Attributes:
        launch: how each engine is started.
        least: engines that stay awake even when nothing is due.
        most: largest number of engines.
        priority: higher goes first where engines wait for a place.
        pool: placement pool on a Ray cluster whose quota the engines count against; empty for that of the settings.
        labels: labels for the preemption rules there, in addition to `role: rollout`.
        idle_s: seconds without a due sample after which an engine sleeps.
    """

    launch: Launch
    least: int = 0
    most: int = 1
    priority: float = ENGINE_PRIORITY
    pool: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    idle_s: float = 30.0
