"""How a model is served from weights: what starts its engines, how many there may be, and what goes before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from headgate.core.errors import InvalidInputError

Program = Literal["llama.cpp", "vllm", "sglang", "command"]
PROGRAMS: Final[tuple[str, ...]] = get_args(Program)

ENGINE_PRIORITY: Final = 1.0
"""Of engines, below that of every role of a training."""

_WEIGHTS: Final = {"llama.cpp": "a GGUF file", "vllm": "a folder or name", "sglang": "a folder or name"}


@dataclass(frozen=True, slots=True)
class Launch:
    """How an engine is started. The same on every node; what differs there is put in when it starts.

    Attributes:
        program: whose command line it is.
        weights: file or folder, as the program takes it, at the same place on every node, or an address of S3; empty
            for a command that names its own.
        name: that requests call the model by.
        gpus: over which the program spreads the model.
        slots: requests that it runs at once.
        options: further flags, `max-model-len: 4096` becoming `--max-model-len 4096` and `enable-x: true` `--enable-x`.
        command: of the program `command`; `{port}`, `{weights}` and `{name}` are put in.
        environ: variables besides those of the node.
        start_s: how long it may take to answer.
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
        if (self.program == "command") != bool(self.command):
            said = f"takes no command (got {self.command!r:.200})" if self.command else "needs a command that starts it"
            raise InvalidInputError(f"an engine of {self.program} {said}")
        if self.program in _WEIGHTS and not self.weights:
            raise InvalidInputError(f"an engine of {self.program} needs its weights, {_WEIGHTS[self.program]}")
        if self.command and "{port}" not in self.command:
            raise InvalidInputError(f"the command of an engine must take its {{port}} (got {self.command!r:.200})")


@dataclass(frozen=True, slots=True)
class Serving:
    """How Headgate serves a model: engines that it starts, wakes when samples are due, and lets sleep.

    Attributes:
        launch: of each engine.
        least: engines that are awake whatever is due.
        most: engines at most.
        priority: higher goes first where engines stand in line.
        pool: of placement on a Ray cluster, whose quota the engines count against; that of the settings when empty.
        labels: what the rules of preemption look at there, besides `role: rollout`.
        idle_s: an engine sleeps once no sample was due for so long.
    """

    launch: Launch
    least: int = 0
    most: int = 1
    priority: float = ENGINE_PRIORITY
    pool: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    idle_s: float = 30.0
