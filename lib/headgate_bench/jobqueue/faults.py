"""P5.faults: burn-downs while workers and the server are killed; the rivals' workers are killed, too."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from headgate.jobqueue import Happening, HistoryEntry, JobQuery, JobState, Reader
from headgate.jobqueue.stores import open_store
from headgate_bench.artifact import at_most
from headgate_bench.definition import Outcome
from headgate_bench.jobqueue import fault_worker
from headgate_bench.jobqueue.connection import Connection
from headgate_bench.jobqueue.part import FAILED, NOT_INSTALLED, RIVALS, Site, call, is_installed
from headgate_bench.jobqueue.served import Server, run, start

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Toll:
    """Outcomes of a queue's jobs."""

    jobs: int  # submitted jobs
    lost: int  # jobs not done at the end
    counted_twice: int  # completions accepted beyond one per job
    # Runs beyond one per job; in any queue, a worker that dies between its work and its report costs one.
    ran_again: int
    refused: int = 0  # refused results of zombies
    broken: int = 0  # completions confirmed to a worker but not recorded, and claims of jobs already claimed

    @property
    def wrong(self) -> int:
        """Everything that must not happen."""
        return self.lost + self.counted_twice + self.broken


def toll_of(reader: Reader, jobs: int, log: Path) -> Toll:
    """Return the toll of a queue, from its history, its jobs and its workers' log."""
    entries = _history(reader)
    done = _count_done(reader)
    completed = Counter(entry.job_id for entry in entries if entry.what is Happening.COMPLETED)
    recorded = {(e.job_id, str(e.epoch), e.lease_id) for e in entries if e.what is Happening.COMPLETED}
    # A line cut off by a kill does not count.
    said = [line.split(" ") for line in log.read_text(encoding="ascii").split("\n")[:-1]]
    runs = Counter(words[1] for words in said if words[0] == "ran")
    unkept = sum(words[0] == "done" and tuple(words[1:]) not in recorded for words in said)
    return Toll(
        jobs=jobs,
        lost=jobs - done,
        counted_twice=completed.total() - len(completed),
        ran_again=runs.total() - len(runs),
        refused=sum(words[0] == "refused" for words in said),
        broken=unkept + _claimed_while_claimed(entries),
    )


def _claimed_while_claimed(entries: list[HistoryEntry]) -> int:
    running: set[str] = set()
    found = 0
    for entry in entries:
        if entry.what is Happening.CLAIMED:
            found += entry.job_id in running
            running.add(entry.job_id)
        elif entry.what in (Happening.COMPLETED, Happening.FAILED, Happening.EXPIRED, Happening.GIVEN_BACK):
            running.discard(entry.job_id)
    return found


def _history(reader: Reader) -> list[HistoryEntry]:
    entries: list[HistoryEntry] = []
    while page := reader.history(entries[-1].entry if entries else -1, _PAGE):
        entries += page
    return entries


def _count_done(reader: Reader) -> int:
    done, after = 0, -1
    while page := reader.jobs(JobQuery(state=JobState.DONE, after=after, limit=_PAGE)):
        done, after = done + len(page), page[-1].seq
    return done


_OURS: Final = "headgate"
_WORKERS: Final = 4
_RIVALS_WORKERS: Final = 2
_KILL_EVERY_S: Final = (0.4, 1.0)
_RIVALS_KILL_EVERY_S: Final = (1.0, 2.5)
"""Longer, since their workers take longer to start, and one killed before it works has nothing to lose."""

_SERVER_KILL_EVERY_S: Final = (0.8, 1.6)
_RIVALS_LEASE_S: Final = 3.0
_FROZEN_JOB_S: Final = 0.5
_AWAKE_S: Final = 1.5
"""Time for the woken worker to submit its late results."""

_SETTLED_WITHIN_S: Final = 45.0
_LOOK_EVERY_S: Final = 0.2


def faults(site: Site, tell: Callable[[float], None]) -> Outcome:
    """Return the tolls of Headgate on each store, and of the rivals; all run in parallel, since nothing is timed."""
    tell(0.0)
    return run(_faults(site))


async def _faults(site: Site) -> Outcome:
    parameters, part = site.parameters, Outcome()
    contenders: dict[str, Awaitable[Toll | str]] = {
        f"{_OURS}, {store}": _ours(site, store, random.Random(f"{site.seed} {store}")) for store in parameters.stores
    }
    if site.postgres is not None:
        contenders |= {rival.NAME: _rival(site, rival) for rival in RIVALS}
    tolls = dict(zip(contenders, await asyncio.gather(*contenders.values()), strict=True))
    ours = {name: toll for name, toll in tolls.items() if name.startswith(_OURS) and isinstance(toll, Toll)}
    rivals = {name: toll for name, toll in tolls.items() if name not in ours}
    part.samples += [
        {"part": "faults", "contender": name} | asdict(toll) for name, toll in tolls.items() if isinstance(toll, Toll)
    ]
    kills = f"{parameters.worker_kills} kills of workers and {parameters.server_kills} of the server"
    part.bars.append(
        at_most(
            "P5.faults",
            f"jobs lost or counted twice, and promises broken, over {kills} on each of {', '.join(parameters.stores)}",
            sum(toll.wrong for toll in ours.values()),
            parameters.bar_lost,
            "jobs",
            {name: toll.wrong if isinstance(toll, Toll) else toll for name, toll in rivals.items()},
        )
    )
    part.notes += [f"P5.faults: {name}: {_told(toll)}." for name, toll in tolls.items()]
    part.notes.append(
        "P5.faults: the rivals have no server of their own to kill. One worker of each is frozen amid its jobs, "
        "and woken when others have done them. Work that was not reported when its worker died is run again everywhere."
    )
    return part


def _told(toll: Toll | str) -> str:
    if isinstance(toll, str):
        return toll
    return (
        f"{toll.jobs} jobs, {toll.lost} lost, {toll.counted_twice} counted twice, {toll.ran_again} runs repeated, "
        f"{toll.refused} late results refused, {toll.broken} promises broken"
    )


# Ours.


async def _ours(site: Site, store: str, rng: random.Random) -> Toll:
    parameters = site.parameters
    folder = site.folder / f"faults-{store}"
    folder.mkdir()
    log = folder / "workers.log"
    log.touch()
    with site.database(store) as database:
        queue = _Killable(database, folder, await start(database, folder))
        workers = Crowd(lambda name, job_s: (*_WORKER, str(queue.port), name, str(log), str(job_s)), rng)
        try:
            async with Connection(queue.port) as connection:
                await connection.submit([f"job-{number}" for number in range(parameters.fault_jobs)])
            await workers.freeze_one(lambda: "ran" in log.read_text())
            await workers.start(_WORKERS, parameters.fault_job_s)
            async with asyncio.TaskGroup() as group:
                group.create_task(workers.kill(parameters.worker_kills, _KILL_EVERY_S))
                group.create_task(queue.kill(parameters.server_kills, rng))
            await _settled(lambda: _is_drained(queue.port))
            await workers.wake()
        finally:
            await workers.stop()
            await queue.server.stop()
        reader = open_store(database).reader()
        try:
            return toll_of(reader, parameters.fault_jobs, log)
        finally:
            reader.close()


_WORKER: Final = (sys.executable, "-I", "-S", str(Path(fault_worker.__file__)))


class _Killable:
    """A server that is killed and restarted on the same port and database."""

    def __init__(self, database: str, folder: Path, server: Server) -> None:
        self._database, self._folder = database, folder
        self.server = server
        self.port = server.port

    async def kill(self, times: int, rng: random.Random) -> None:
        for _ in range(times):
            await asyncio.sleep(rng.uniform(*_SERVER_KILL_EVERY_S))
            await self.server.kill()
            self.server = await start(self._database, self._folder, port=self.port)


async def _is_drained(port: int) -> bool:
    async with Connection(port) as connection:
        jobs = (await connection.get("/v1/statistics"))["jobs"]
    return bool(jobs["pending"] + jobs["in_progress"] == 0)


# The rivals.


async def _rival(site: Site, rival: ModuleType) -> Toll | str:
    if not is_installed(rival):
        return NOT_INSTALLED
    parameters, rng = site.parameters, random.Random(f"{site.seed} {rival.NAME}")
    with site.database("postgres") as url:
        if await call(rival, "submit", url, str(parameters.fault_jobs)) is None:
            return FAILED
        command = (sys.executable, "-m", rival.__name__, "work", url)
        workers = Crowd(lambda _, job_s: (*command, str(job_s), str(_RIVALS_LEASE_S)), rng)
        try:
            await workers.freeze_one(lambda: _count(url, "SELECT count(*) FROM bench_effects") > 0)
            await workers.start(_RIVALS_WORKERS, parameters.fault_job_s)
            await workers.kill(parameters.worker_kills, _RIVALS_KILL_EVERY_S)

            async def is_drained() -> bool:
                return bool(_count(url, rival.COUNTS["finished"]) >= parameters.fault_jobs)

            await _settled(is_drained)
            await workers.wake()
        finally:
            await workers.stop()
        found = {name: _count(url, query) for name, query in rival.COUNTS.items()}
    return Toll(
        jobs=parameters.fault_jobs,
        lost=parameters.fault_jobs - found["finished"],
        counted_twice=found["counted_twice"],
        ran_again=found["ran_again"],
    )


def _count(url: str, query: str) -> int:
    import psycopg  # noqa: PLC0415 - an optional extra

    with psycopg.connect(url) as connection:
        row: Any = connection.execute(query.encode()).fetchone()
        return int(row[0])


# Workers of any queue.


class Crowd:
    """Worker processes that are killed and replaced; `command` gives the command for a name and the seconds per job."""

    def __init__(self, command: Callable[[str, float], tuple[str, ...]], rng: random.Random) -> None:
        self._command, self._rng = command, rng
        self._living: list[asyncio.subprocess.Process] = []
        self._frozen: list[asyncio.subprocess.Process] = []
        self._job_s = 0.0
        self._born = 0

    async def start(self, count: int, job_s: float) -> None:
        """Start workers; the replacements of killed ones use the same `job_s`."""
        self._job_s = job_s
        for _ in range(count):
            self._living.append(await self._new(job_s))

    async def kill(self, times: int, every_s: tuple[float, float]) -> None:
        """Kill -9 one worker after another at random moments, and replace each."""
        for _ in range(times):
            await asyncio.sleep(self._rng.uniform(*every_s))
            victim = self._living.pop(self._rng.randrange(len(self._living)))
            await _end(victim)
            self._living.append(await self._new(self._job_s))

    async def freeze_one(self, is_at_work: Callable[[], bool]) -> None:
        """Start a worker, and freeze it while it works."""
        frozen = await self._new(_FROZEN_JOB_S)
        self._frozen.append(frozen)
        while not is_at_work():  # noqa: ASYNC110 - another process sends no event
            await asyncio.sleep(0.02)
        frozen.send_signal(signal.SIGSTOP)

    async def wake(self) -> None:
        """Wake the frozen worker after others have done its jobs, so that its results are late."""
        for frozen in self._frozen:
            frozen.send_signal(signal.SIGCONT)
        await asyncio.sleep(_AWAKE_S)

    async def stop(self) -> None:
        """Kill all workers."""
        for process in (*self._living, *self._frozen):
            await _end(process)

    async def _new(self, job_s: float) -> asyncio.subprocess.Process:
        self._born += 1
        return await asyncio.create_subprocess_exec(
            *self._command(f"worker-{self._born}", job_s),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _settled(is_drained: Callable[[], Awaitable[bool]]) -> None:
    """Wait until nothing is left to do, or for a limited time: jobs not done by then count as lost."""
    deadline = time.monotonic() + _SETTLED_WITHIN_S
    while time.monotonic() < deadline and not await is_drained():  # noqa: ASYNC110 - as above
        await asyncio.sleep(_LOOK_EVERY_S)
