"""The tasks of a case, in row groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from headgate.core import Task, TaskId
from headgate.scheduling import RowGroup
from headgate_bench.idle.cases import Case
from headgate_bench.idle.metrics import LOCAL, MODEL, SUBMISSION

PRESSURED: Final = "a_pressured"
OPEN: Final = "z_open"
HEAVY: Final = "hot"
PEER: Final = "peer"
ARRIVAL: Final = "arrival"
CALL: Final = "call"
SEED: Final = "seed"

_ON_MODEL: Final = MappingProxyType({MODEL: 1, SUBMISSION: 1})
_ON_MACHINE: Final = MappingProxyType({LOCAL: 1, SUBMISSION: 1})


def row_groups_of(case: Case) -> Iterator[RowGroup]:
    """Give the row groups of a case; a group's seed comes before all of its rows."""
    if case.shape == "peer":
        yield from _heavy_and_peer(case)
        return
    for number, first in enumerate(range(0, case.records, case.buffer)):
        rows = range(first, min(first + case.buffer, case.records))
        seed = _task(case, f"{number}/{SEED}", SEED, number, _ON_MACHINE)
        tasks = [seed]
        for row in rows:
            tasks += _row(case, row, seed.task_id)
        yield RowGroup(str(number), tuple(tasks), len(rows))


def _row(case: Case, row: int, seed: TaskId) -> Iterator[Task]:
    if case.shape == "requests":
        yield _task(case, f"{row}/{CALL}", CALL, row, after=(seed,))
    elif case.shape == "pipeline":
        for n in range(case.fanout):
            heavy = _task(case, f"{row}/heavy_{n}", f"heavy_{n}", row, after=(seed,))
            yield heavy
            yield _task(case, f"{row}/fast_{n}", f"fast_{n}", row, after=(heavy.task_id,))
    else:
        yield _task(case, f"{row}/{PRESSURED}", PRESSURED, row, after=(seed,))
        yield _task(case, f"{row}/{OPEN}", OPEN, row, after=(seed,))


def _heavy_and_peer(case: Case) -> Iterator[RowGroup]:
    heavy = tuple(_task(case, f"{row}/{HEAVY}", HEAVY, row) for row in range(case.records))
    yield RowGroup(HEAVY, heavy, case.records)
    # It stands for the world outside, and takes no worker from the heavy group.
    arrival = _task(case, ARRIVAL, ARRIVAL, 0, {LOCAL: 1})
    peers = (_task(case, f"{row}/{PEER}", PEER, row, after=(arrival.task_id,)) for row in range(case.peers))
    yield RowGroup(PEER, (arrival, *peers), case.peers)


def _task(
    case: Case,
    name: str,
    stage: str,
    row: int,
    resources: Mapping[str, int] = _ON_MODEL,
    after: tuple[TaskId, ...] = (),
) -> Task:
    is_model_task = resources is _ON_MODEL
    return Task(
        task_id=TaskId(name),
        # A provider has one model here; where there is no pressure, all stages share one, as in DataDesigner's suite.
        model=stage if case.shape in {"pressure", "cooldown"} else "benchmark",
        environment="idle",
        sequence=row,
        index=row,
        seed=row,
        group=stage,
        due_at=0.0,
        stage=stage,
        weight=float(case.group_weight) if is_model_task and stage != PEER else 1.0,
        resources=resources,
        depends_on=after,
    )
