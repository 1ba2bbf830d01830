"""A fixed matrix of models × environments × instances, in place of daily rates: what an evaluation runs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Self

import polars as pl

from headgate.core import Model, Task, request_seed_of, unit_hash
from headgate.core.errors import InvalidInputError
from headgate.core.events import Event
from headgate.environments import Environment
from headgate.sampling import Demand

_AT_ONCE = 256

_MOST_SEQUENCE: Final = 2**63 - 1

Cell = tuple[str, str, int]
"""Model key, environment, and sequence."""


@dataclass(frozen=True, slots=True)
class MatrixTasks:
    """The tasks of a matrix: the first `instances` of each environment, `repeats` times.

    A repeat is a later pass over the environment's data: its sequence is larger by a multiple of the data length, and
    its index is the same. A run without repeats takes the first pass.

    Attributes:
        instances: tasks per environment, from 0.
        repeats: samples of each task.
        lengths: data length by environment.

    Raises:
        InvalidInputError: if `instances` or `repeats` is below 1, or a sequence would be too large to be stored.
    """

    instances: int
    repeats: int = 1
    lengths: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("instances", self.instances), ("repeats", self.repeats)):
            if value < 1:
                raise InvalidInputError(f"{name} must be >= 1 (got {value})")
        for environment in self.lengths:
            if self.repeats * self._stride(environment) > _MOST_SEQUENCE:
                raise InvalidInputError(
                    f"{environment}: {self.repeats} x {self.instances:,} tasks cannot be numbered",
                    next_step="Take fewer instances or repeats.",
                )

    @classmethod
    def among(cls, environments: Mapping[str, Environment], instances: int, repeats: int) -> Self:
        """Return the tasks of environments, given by name."""
        return cls(instances, repeats, {name: one.spec.data_length for name, one in environments.items()})

    @property
    def size(self) -> int:
        """Number of samples of one model in one environment."""
        return self.instances * self.repeats

    def sequences(self, environment: str) -> list[int]:
        """Return the sequences of an environment's tasks, repeat by repeat."""
        stride = self._stride(environment)
        return [repeat * stride + n for repeat in range(self.repeats) for n in range(self.instances)]

    def of(self, samples: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of `samples` whose `environment` and `sequence` belong to these tasks."""
        strides = {environment: self._stride(environment) for environment in self.lengths}
        stride = pl.col("environment").replace_strict(strides, default=None, return_dtype=pl.Int64)
        number = pl.col("sequence")
        return samples.filter(number % stride < self.instances, number // stride < self.repeats)

    def _stride(self, environment: str) -> int:
        """Return how far a repeat's sequences are offset: `instances`, rounded up to whole passes over the data."""
        length = self.lengths.get(environment, self.instances)
        return -(-self.instances // length) * length


def repeat_ks(repeats: int) -> tuple[int, ...]:
    """Return the k for which a run with `repeats` reports pass@k and maj@k: powers of 2, and `repeats` itself."""
    return tuple(2**power for power in range(1, (repeats - 1).bit_length())) + ((repeats,) if repeats > 1 else ())


def request_seed(model: Model, task: Task, data_length: int, repeats: int) -> int | None:
    """Return the seed that a task's requests send; None if neither its model nor the run sets one.

    A seed in the model's options increases by 1 with each pass over the data; `seed: null` there sends none.
    """
    repeat, options = task.sequence // data_length, dict(model.options)
    if "seed" in options:
        stated = options["seed"]
        return (stated + repeat) % 2**31 if type(stated) is int else None
    return request_seed_of(task.environment, task.index, repeat) if repeats > 1 else None


def seeded(model: Model, seed: int | None) -> Model:
    """Return `model` with `seed` in its options."""
    return model if seed is None else replace(model, options=tuple((dict(model.options) | {"seed": seed}).items()))


class MatrixTaskProvider:
    """Gives each cell of the matrix once, task by task over all models and environments.

    Implements `headgate.sampling.TaskProvider`. Cells that were scored before are left out. Those that only
    failed run again as another stage (`sample.2`, …), so that both outcomes are on record.
    `limits` are rows at which models get no further cell for now, by their keys; others have no limit.
    """

    def __init__(
        self,
        environments: Sequence[str],
        tasks: MatrixTasks | int,
        *,
        done: Collection[Cell] = (),
        failed: Mapping[Cell, int] | None = None,
        is_shuffled: bool = False,
    ) -> None:
        """Prepare a matrix.

        Args:
            environments: their names.
            tasks: of each model and environment; an integer gives the number of instances, without repeats.
            done: cells that have a scored sample.
            failed: cells that have only unscored samples, and how many.
            is_shuffled: give the tasks in a random order, the same for every model and every run; if sampling may
                stop early, the tasks that were taken are then representative of those that were not.

        Raises:
            InvalidInputError: if there are no instances.
        """
        self._environments = tuple(environments)
        self._tasks = tasks if isinstance(tasks, MatrixTasks) else MatrixTasks(tasks)
        self.is_shuffled = is_shuffled
        self._done = frozenset(done)
        self._failed = dict(failed or {})
        self.limits: Mapping[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, Cell]]] = {}  # by model, with their rows

    def next_at(self, now: float) -> float | None:
        """Return `now` while there are cells to give."""
        return now if self._ready() else None

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the next cells, up to a few hundred."""
        return [self._demand(cell, now) for cell in islice(self._given(), _AT_ONCE)], ()

    @property
    def is_empty(self) -> bool:
        """Whether there are no cells to give, whatever the limits."""
        return not any(self._waiting.values())

    def drop(self, models: Collection[str]) -> None:
        """Give no further cells of these models."""
        for model in self._waiting.keys() & models:
            self._waiting[model].clear()

    def reached(self, model: str) -> int:
        """Return the first row of which a model has cells to be given; the number of rows if it has none."""
        waiting = self._waiting.get(model)
        return waiting[0][0] if waiting else self._tasks.size

    def _ready(self) -> list[deque[tuple[int, Cell]]]:
        return [cells for key, cells in self._waiting.items() if cells and cells[0][0] < self.limits.get(key, math.inf)]

    def _given(self) -> Iterator[Cell]:
        while ready := self._ready():
            row = min(cells[0][0] for cells in ready)
            for cells in ready:
                if cells[0][0] == row:
                    yield cells.popleft()[1]

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Add the cells of models that are new or return, and drop those of models that are gone.

        Of a model that returns, the journal refuses the cells that it had taken before.
        """
        ordered = [self._ordered(name) for name in self._environments]
        self._waiting = {
            key: self._waiting[key]
            if key in self._waiting
            else deque(
                (row, cell)
                for row in range(self._tasks.size)
                for environment, numbers in zip(self._environments, ordered, strict=True)
                if (cell := (key, environment, numbers[row])) not in self._done
            )
            for key in (model.key for model in models)
        }

    def rows(self) -> dict[tuple[str, int], int]:
        """Return each task's place in its environment's order, from 0, by environment and sequence."""
        return {(name, number): row for name in self._environments for row, number in enumerate(self._ordered(name))}

    def _ordered(self, environment: str) -> list[int]:
        return sorted(self._tasks.sequences(environment), key=self.place)

    def place(self, sequence: int) -> float:
        """Return the sort key of a task."""
        return unit_hash("place", str(sequence)) if self.is_shuffled else sequence

    def _demand(self, cell: Cell, now: float) -> Demand:
        model, environment, sequence = cell
        runs = self._failed.get(cell, 0)
        stage = f"sample.{runs + 1}" if runs else "sample"
        return Demand(model, environment, due_at=now, interval_s=0.0, sequence=sequence, stage=stage)
