"""Several processes that sample one campaign on one PostgreSQL journal, all competing for the same due times."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier
from typing import Final

import psycopg

from headgate.core import Task
from headgate.durable.databases import PostgresAddress
from headgate.storage import Journal, Opening
from headgate_bench.crashes import sample_of

CAMPAIGN: Final = "bench-scaleout"
ENVIRONMENT: Final = "bench:free"
_EPOCH: Final = 1_767_225_600.0
_INTERVAL_S: Final = 60.0
_WITHIN_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Race:
    """The work of every process: each round is a due time of every model, opened and accepted in batches of `batch`."""

    models: int
    rounds: int
    batch: int

    @property
    def dues(self) -> int:
        """Total number of due times."""
        return self.models * self.rounds


@dataclass(frozen=True, slots=True)
class Raced:
    """The result of a race.

    Attributes:
        wall_s: time from the common start to the end of the last process.
        accepted: (model, sequence) of every sample that was confirmed to a process as accepted.
        stored: (model, sequence) of every sample in a confirmed batch.
        left: open tasks and spooled samples at the end.
        cpu_s: CPU time of the processes during their calls, and of the server processes that answer them.
        waited_s: time for which these processes were ready to run but had no processor.
    """

    processes: int
    wall_s: float
    accepted: list[tuple[str, int]]
    stored: list[tuple[str, int]]
    left: int
    cpu_s: float
    waited_s: float


def raced(url: str, race: Race, processes: int) -> Raced:
    """Let `processes` processes sample one campaign on an empty database; raises what any of them raises."""
    context = get_context("spawn")
    with context.Manager() as shared, ProcessPoolExecutor(processes, context) as racers:
        start = shared.Barrier(processes + 1)
        racing = [racers.submit(_sampled, url, race, number / processes, start) for number in range(processes)]
        start.wait(_WITHIN_S)
        began = time.perf_counter()
        accepted, stored, cpu_s, waited_s = zip(*[one.result(_WITHIN_S) for one in racing], strict=True)
        wall_s = time.perf_counter() - began
    with closing(Journal(PostgresAddress(url), CAMPAIGN)) as journal:
        left = journal.open_count() + journal.spool_count()
    all_accepted, all_stored = list(chain(*accepted)), list(chain(*stored))
    return Raced(processes, wall_s, all_accepted, all_stored, left, sum(cpu_s), sum(waited_s))


_Numbers = list[tuple[str, int]]


def _sampled(url: str, race: Race, begins_at: float, start: Barrier) -> tuple[_Numbers, _Numbers, float, float]:
    """Take part in a race; return the accepted and stored samples, and the times of `Raced`."""
    accepted, stored = _Numbers(), _Numbers()
    with closing(Journal(PostgresAddress(url), CAMPAIGN)) as journal:
        with psycopg.connect(url) as asked:
            name = f"headgate {journal.holder}"
            ((server,),) = asked.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", (name,))
        start.wait(_WITHIN_S)
        before, waited_s = _cpu_s(server) + time.process_time(), _waited_s(server) + _waited_s(os.getpid())

        def store() -> None:
            while (batch := journal.next_batch(5_000)) is not None:
                journal.batch_stored(batch.batch_id)
                stored.extend((one.model, one.sequence) for one in batch.samples)

        parts = [range(first, min(first + race.batch, race.models)) for first in range(0, race.models, race.batch)]
        first = int(begins_at * len(parts))  # each process starts with different models, and then finds some taken
        for turn in range(race.rounds):
            due_at = _EPOCH + _INTERVAL_S * turn
            for part in parts[first:] + parts[:first]:
                wanted = [
                    Opening(f"bench/m{model:04d}@main", ENVIRONMENT, due_at, _INTERVAL_S, 1_000) for model in part
                ]
                tasks = {str(one.task_id): one for one in journal.open(wanted) if isinstance(one, Task)}
                if tasks:
                    done = journal.accept([sample_of(task) for task in tasks.values()], due_at)
                    accepted.extend((tasks[one].model, tasks[one].sequence) for one in done)
            if journal.spool_state().rows >= 2_000:
                store()
        store()
        cpu_s = _cpu_s(server) + time.process_time() - before
        return accepted, stored, cpu_s, _waited_s(server) + _waited_s(os.getpid()) - waited_s


def _cpu_s(process: int) -> float:
    """Return the CPU time of a process on this machine, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _waited_s(process: int) -> float:
    """Return for how many seconds a process on this machine was ready to run but waited for a processor."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
