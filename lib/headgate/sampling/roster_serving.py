"""The section `serve` of a roster's entry: how Headgate serves the model from weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from headgate.core import ENGINE_PRIORITY, Launch, Program, Serving
from headgate.core.documents import flaws_in_words
from headgate.core.errors import InvalidInputError

_REPLICAS: Final = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_FEWEST: Final = 1


class LaunchForm(BaseModel):
    """What is written of an engine that is started from weights, wherever that is.

    Attributes:
        weights: file, folder or hub's name, as the engine takes it; or an address `s3://…`.
        slots: requests that each runs at once.
        options: further flags of the engine.
        command: how the engine `command` is started; `{port}`, `{weights}` and `{name}` are put in.
        environ: variables that the engine gets.
        start_s: how long it may take to answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: str = ""
    slots: int = Field(8, ge=1, le=100_000)
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    command: str = ""
    environ: dict[str, str] = Field(default_factory=dict)
    start_s: float = Field(600.0, gt=0, allow_inf_nan=False)

    def launch(self, program: Program, name: str, *, gpus: int, weights: str) -> Launch:
        """Return how an engine is started; `name` is what requests call the model.

        Raises:
            InvalidInputError: something that the engine needs is missing.
        """
        same = self.model_dump(include={"slots", "options", "command", "environ", "start_s"})
        return Launch(program, weights, name, gpus, **same)


class ServeSection(LaunchForm):
    """How a model is served, as a roster writes it.

    Attributes:
        engine: whose command line starts it: `llama.cpp`, `vllm`, `sglang`, or `command` for one of your own.
        gpus: of each engine.
        replicas: engines awake at least and at most, `0-2`; a number is both.
        priority: higher goes first where engines stand in line.
        pool: of placement on a Ray cluster; that of the settings when empty.
        labels: for the rules of preemption there.
        idle_s: it sleeps once nothing was due for so long.
    """

    engine: Program
    gpus: int = Field(0, ge=0, le=1_024)
    replicas: tuple[int, int] = (0, 1)
    priority: float = Field(ENGINE_PRIORITY, allow_inf_nan=False)
    pool: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    idle_s: float = Field(30.0, gt=0, allow_inf_nan=False)

    @field_validator("replicas", mode="before")
    @classmethod
    def _be_a_range(cls, written: Any) -> tuple[int, int]:
        found = None if isinstance(written, bool) else _REPLICAS.fullmatch(str(written).replace(" ", ""))
        least = int(found[1]) if found else 1
        most = int(found[2] or found[1]) if found else 0
        if most < max(least, _FEWEST):
            raise ValueError("must be a number of engines >= 1, or the fewest and the most as 0-2")
        return least, most

    def serving(self, name: str) -> Serving:
        """Return it as the run takes it; `name` is what requests call the model.

        Raises:
            InvalidInputError: something that the engine needs is missing.
        """
        launch = self.launch(self.engine, name, gpus=self.gpus, weights=_at_hand(self.weights))
        least, most = self.replicas
        return Serving(launch, least, most, self.priority, self.pool, self.labels, self.idle_s)


def read_serving(written: object, name: str) -> Serving:
    """Return what a section `serve` says.

    Raises:
        InvalidInputError: with everything that is wrong with it.
    """
    if not isinstance(written, dict):
        raise InvalidInputError("must be a mapping with engine and weights")
    try:
        return ServeSection.model_validate(written).serving(name)
    except ValidationError as error:
        raise InvalidInputError(flaws_in_words(error, ServeSection)) from None


def _at_hand(weights: str) -> str:
    """Return weights whose path does not depend on where the engine runs; a name of a hub stays one."""
    if not weights or _ADDRESS.match(weights):
        return weights
    path = Path(weights).expanduser()
    is_path = path.exists() or weights.startswith((".", "~")) or path.suffix == ".gguf"
    return str(path.absolute()) if is_path else weights
