"""One process of several that sample one campaign on one PostgreSQL journal: all want the same due times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psycopg

from headgate.core import Task
from headgate.core.errors import HeadgateError
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
    """What every process does: each round is a due time of every model, opened and accepted `batch` at once."""

    models: int
    rounds: int
    batch: int

    @property
    def dues(self) -> int:
        """Due times in all."""
        return self.models * self.rounds


@dataclass(frozen=True, slots=True)
class Raced:
    """What became of a race.

    Attributes:
        wall_s: from the start that all waited for to the end of the last.
        accepted: (model, sequence) of every sample that a process was told to be accepted.
        stored: the same of every sample in a batch that was confirmed.
        left: open tasks and spooled samples at the end.
        cpu_s: of the processes within their calls, and of the server's processes that answer them.
        waited_s: for which these could have worked, and had no processor.
    """

    processes: int
    wall_s: float
    accepted: list[tuple[str, int]]
    stored: list[tuple[str, int]]
    left: int
    cpu_s: float
    waited_s: float


class RacerFailedError(HeadgateError):
    """A process of the benchmark ended otherwise than it was to."""

    code = "bench_process_failed"
    next_step = "Its own messages are on standard error; run the benchmark again."


def raced(url: str, race: Race, processes: int, folder: Path) -> Raced:
    """Have so many processes sample a campaign together, on an empty database.

    Raises:
        RacerFailedError: if one of them fails.
    """
    order = json.dumps({"url": url, **asdict(race)})
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(  # noqa: S603 - this very program
                    [sys.executable, "-m", __name__, str(number), str(processes), str(folder / f"racer-{number}")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(processes)
        ]
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(order + "\n")
            racer.stdin.flush()
        for racer in racers:
            assert racer.stdout is not None
            racer.stdout.readline()  # it is up
        began = time.perf_counter()
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.close()
        ended = [racer.wait(_WITHIN_S) for racer in racers]
        if any(ended):
            raise RacerFailedError(f"one of {processes} processes on a journal failed")
        wall_s = time.perf_counter() - began
    accepted: list[tuple[str, int]] = []
    stored: list[tuple[str, int]] = []
    cpu_s = waited_s = 0.0
    for number in range(processes):
        told = json.loads((folder / f"racer-{number}").read_text())
        accepted += map(tuple, told["accepted"])
        stored += map(tuple, told["stored"])
        cpu_s += told["cpu_s"]
        waited_s += told["waited_s"]
    journal = Journal(PostgresAddress(url), CAMPAIGN)
    left = journal.open_count() + journal.spool_count()
    journal.close()
    return Raced(processes, wall_s, accepted, stored, left, cpu_s, waited_s)


def main(arguments: Sequence[str]) -> int:
    """Take part in a race: the order comes on standard input, the start is its end."""
    number, processes, told = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    order = json.loads(sys.stdin.readline())
    race = Race(order["models"], order["rounds"], order["batch"])
    journal = Journal(PostgresAddress(order["url"]), CAMPAIGN)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    sys.stdin.read()
    accepted: list[tuple[str, int]] = []
    stored: list[tuple[str, int]] = []
    with psycopg.connect(order["url"]) as asked:
        name = f"headgate {journal.holder}"
        ((server,),) = asked.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", (name,))
    before, waited_s = _cpu_s(server) + time.process_time(), _waited_s(server) + _waited_s(os.getpid())

    def store() -> None:
        while (batch := journal.next_batch(5_000)) is not None:
            journal.batch_stored(batch.batch_id)
            stored.extend((one.model, one.sequence) for one in batch.samples)

    parts = [range(first, min(first + race.batch, race.models)) for first in range(0, race.models, race.batch)]
    first = number * len(parts) // processes  # each begins with models of its own, and then finds some taken
    for turn in range(race.rounds):
        due_at = _EPOCH + _INTERVAL_S * turn
        for part in parts[first:] + parts[:first]:
            wanted = [Opening(f"bench/m{model:04d}@main", ENVIRONMENT, due_at, _INTERVAL_S, 1_000) for model in part]
            tasks = {str(one.task_id): one for one in journal.open(wanted) if isinstance(one, Task)}
            if tasks:
                done = journal.accept([sample_of(task) for task in tasks.values()], due_at)
                accepted.extend((tasks[one].model, tasks[one].sequence) for one in done)
        if journal.spool_state().rows >= 2_000:
            store()
    store()
    cpu_s = _cpu_s(server) + time.process_time() - before
    waited_s = _waited_s(server) + _waited_s(os.getpid()) - waited_s
    journal.close()
    told.write_text(json.dumps({"accepted": accepted, "stored": stored, "cpu_s": cpu_s, "waited_s": waited_s}))
    return 0


def _cpu_s(process: int) -> float:
    """Return the CPU time of a process of this machine."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _waited_s(process: int) -> float:
    """Return for how long a process of this machine was ready to run while others had the processors."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
