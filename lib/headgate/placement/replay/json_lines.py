"""A user's own jobs: one JSON object a line.

    {"id": "a", "arrived_s": 0, "duration_s": 60, "gpus": 1, "cpus": 4, "priority": 9, "labels": {"role": "train"}}

`id`, `arrived_s` and `duration_s` are needed, and one of `gpus`, `cpus`, `memory_gib`; `count` makes a gang of so many
such members, `strategy` says where they may lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headgate.placement.amounts import MEBIBYTE, Amounts, amounts
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.replay.errors import InvalidTraceError
from headgate.placement.replay.job import Job, Trace, trace_of
from headgate.placement.request import Strategy

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_MAX_MEMBERS: Final = 256


class JobLine(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(extra="forbid", strict=False)

    id: Annotated[str, Field(min_length=1, max_length=200)]
    arrived_s: Seconds
    duration_s: Positive
    gpus: Seconds = 0
    cpus: Seconds = 0
    memory_gib: Seconds = 0
    count: Annotated[int, Field(ge=1, le=_MAX_MEMBERS)] = 1
    strategy: Strategy = "PACK"
    priority: Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)] = 5.0
    labels: dict[str, str] = Field(default_factory=dict)
    preemptible: bool = True
    checkpoint_every_s: Positive | None = None
    restart_s: Seconds = 0
    estimated_s: Seconds | None = None
    kind: str | None = None

    @model_validator(mode="after")
    def _takes_something(self) -> JobLine:
        if not (self.gpus or self.cpus or self.memory_gib):
            raise ValueError("takes nothing: give gpus, cpus or memory_gib")
        return self

    def job(self) -> Job:
        """Return the job that the line describes; the scheduler is told its duration unless `estimated_s` is given."""
        kind = self.kind or next(iter(self.labels.values()), f"priority {self.priority:g}")
        return Job(
            self.id,
            self.arrived_s,
            self.duration_s,
            (self._member(),) * self.count,
            self.priority,
            self.labels,
            self.strategy,
            checkpoint_every_s=self.checkpoint_every_s,
            restart_s=self.restart_s,
            preemptible=self.preemptible,
            estimated_s=self.duration_s if self.estimated_s is None else self.estimated_s,
            kind=kind,
        )

    def _member(self) -> Amounts:
        return amounts(self.cpus, self.gpus, int(self.memory_gib * 1024) * MEBIBYTE)


def read_json_lines(path: Path) -> Trace:
    """Return the jobs of a file.

    Raises:
        InvalidTraceError: the file cannot be read, or a line is no job; it names the line and the field.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise InvalidTraceError(f"the file of jobs {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidTraceError(f"{path} is not UTF-8 text (byte {error.start})") from None
    jobs = [_job(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    return trace_of(path.name, jobs)


def _job(path: Path, number: int, line: str) -> Job:
    try:
        return JobLine.model_validate_json(line).job()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        says = f"{field}: {first['msg']}" if field else first["msg"]
        given = "" if first["type"] == "missing" or not field else f" (got {first['input']!r})"
        raise InvalidTraceError(f"{path}: line {number}: {says}{given}") from None
    except InvalidPlacementError as error:
        raise InvalidTraceError(f"{path}: line {number}: {error.message}") from None
