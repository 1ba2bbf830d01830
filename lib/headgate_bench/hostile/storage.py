"""Faults of machines that store Headgate's data: wrong clocks, competing journals, damaged files."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Final

from headgate.core import DAY_S, Spending, Task
from headgate.core.errors import CampaignInUseError, ClockDisagreesError, JournalError
from headgate.jobqueue import Changes, Job, JobSpec
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.stores import open_store as open_queue
from headgate.sampling import budgets
from headgate.storage import Journal, Opening, SpendingReport, open_store, repair
from headgate_bench.hostile.attack import Attack, Ground, Tally
from headgate_bench.store_speed import example_samples

_NOW: Final = 1_767_225_600.0
_MODEL, _ENVIRONMENT, _INTERVAL_S = "bench/model@main", "bench:free", 60.0
_STEPS_S: Final = (3_600.0, 20 * 3_600.0, 2 * DAY_S, 400 * DAY_S, 10_000 * DAY_S)
"""Errors of a clock that are always tried, ahead and back."""

_PAGE: Final = 4_096
_SAMPLES: Final = 40
_JOBS: Final = 200


async def clocks(ground: Ground) -> Tally:
    """Try starts with clocks that are hours, days and years off, on a journal, its budgets and a store."""
    drawn = [ground.rng.uniform(-1_000, 1_000) * DAY_S for _ in range(ground.tries)]
    return await ground.tried(clocks_of(ground.folder, drawn))


def clocks_of(folder: Path, drawn: Sequence[float] = ()) -> Iterator[Attack]:
    """Yield attacks by clocks that are off by the usual steps and by the drawn ones."""
    usual = [way * step for step in _STEPS_S for way in (1, -1)]
    attempts = {"budget": _spent_again, "sampling": _stopped, "sweep": _swept, "lease": _kept_out}
    for (what, attempt), step_s in product(attempts.items(), (*usual, *drawn)):
        name = f"{what}: a clock {abs(step_s):.0f} s {'ahead' if step_s > 0 else 'back'}"
        yield Attack(name, partial(attempt, folder / name, step_s))


async def _spent_again(folder: Path, step_s: float) -> str:
    """Spend a day's requests, start once with the wrong clock, and return what the right one lets be spent again."""
    spent = [_spend(folder, _NOW, 60), _spend(folder, _NOW + 60 + step_s, 0), _spend(folder, _NOW + 120, 60)]
    return f"{spent[-1]} of 60 requests are spent again" if spent[-1] else ""


def _spend(folder: Path, now: float, wanted: int) -> int:
    with closing(Journal(folder, "bench", fsync=False)) as journal:
        journal.reconcile(now, {})
        window = budgets.SpendingWindow()
        window.total(now)
        for answer in journal.exchange_spending({}, now).values():
            window.restore([(min(at, now), spent) for at, spent in answer.news])
        spent = min(wanted, 60 - min(60, window.total(now).requests))
        journal.exchange_spending({_MODEL: SpendingReport(Spending(0, spent, 0))}, now)
        return spent


async def _stopped(folder: Path, step_s: float) -> str:
    """Sample, spool and pause with the wrong clock; return what is overdue by the right one."""
    with closing(Journal(folder, "bench", fsync=False)) as journal:
        _accept(journal, 3, _NOW + step_s)
        journal.record_pause(_MODEL, 2, _NOW + step_s + DAY_S)
    with closing(Journal(folder, "bench", fsync=False)) as journal:
        journal.reconcile(_NOW, {_ENVIRONMENT: _INTERVAL_S})
        journal.adopt([_ENVIRONMENT], [_MODEL])
        found = journal.history(_NOW)
        due, pause = found.pairs[_MODEL, _ENVIRONMENT].last_due or 0.0, found.pauses[_MODEL][1]
        waits_s = {"a sample": due - _NOW, "an upload": (journal.spool_state().oldest_at or 0.0) - _NOW}
        waits_s["the end of a pause"] = pause - _NOW - DAY_S
    late = [f"{what} waits for {wait_s / DAY_S:.1f} days" for what, wait_s in waits_s.items() if wait_s > 300]
    return "; ".join(late)


async def _swept(folder: Path, ahead_s: float) -> str:
    """Sweep and compact a store while this machine's clock is off."""
    store = open_store(str(folder))
    await store.put_batch("bench", example_samples(3, 1))
    (folder / "samples" / "of-an-upload-under-way.parquet").write_bytes(b"x")
    before = len(_files(folder))
    right, time.time = time.time, lambda: right() + ahead_s
    try:
        for sweep in (store.sweep, store.compact):
            with suppress(ClockDisagreesError):
                await sweep(time.time())
                return f"it was not refused, and {before - len(_files(folder))} of {before} files are gone"
    finally:
        time.time = right
    return ""


async def _kept_out(folder: Path, step_s: float) -> str:
    """Leave the lease of a journal that died while the clock was off; return why the next journal is refused."""
    store = open_store(str(folder / "store"))
    dead, journal = (Journal(folder / name, "bench", fsync=False) for name in ("dead", "next"))
    with closing(dead), closing(journal):
        await store.renew(*dead.lease(), ["a"], is_new=True)
        for path in _files(folder / "store"):
            os.utime(path, (time.time() + step_s,) * 2)
        try:
            await store.renew(*journal.lease(), ["a"], is_new=True)
        except CampaignInUseError as error:
            return str(error)
    return ""


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def journals(ground: Ground) -> Tally:
    """Try to let several journals of one campaign sample the same environments into one store."""
    return await ground.tried(journals_of(ground.folder, 2 * ground.tries, ground.rng))


def journals_of(folder: Path, tries: int, rng: random.Random) -> Iterator[Attack]:
    """Yield two to four journals with some environments each, which start in turn, at once, or meet in an outage."""
    for number in range(tries):
        sampled = [rng.sample("abcde", rng.randint(1, 3)) for _ in range(rng.randint(2, 4))]
        at_once, is_new = rng.random() < 0.5, rng.random() < 0.7
        name = (
            f"{' '.join(''.join(one) for one in sampled)}{', at once' * at_once}{', running' * (not is_new)}, {number}"
        )
        yield Attack(name, partial(_doubled, folder / str(number), sampled, at_once, is_new))


async def _doubled(folder: Path, sampled: Sequence[Sequence[str]], at_once: bool, is_new: bool) -> str:
    """Let journals renew their leases, and end those that are refused; return what several of the others sample."""
    store = open_store(str(folder / "store"))
    journals = [Journal(folder / str(number), "bench", fsync=False) for number in range(len(sampled))]
    running = dict(zip((journal.lease() for journal in journals), sampled, strict=True))

    async def renew(lease: tuple[str, str], is_new: bool) -> None:
        try:
            await store.renew(*lease, running[lease], is_new=is_new)
        except CampaignInUseError:
            await store.give_back(lease[0])
            del running[lease]

    for is_first in (is_new, False, False):
        asked = [partial(renew, lease, is_first) for lease in running]
        if at_once:
            await asyncio.gather(*(ask() for ask in asked))
        else:
            for ask in asked:
                await ask()
    for journal in journals:
        journal.close()
    counts = Counter(chain.from_iterable(running.values()))
    return ", ".join(f"{count} journals sample {one}" for one, count in counts.items() if count > 1)


_Damage = Callable[[bytes, random.Random], bytes]


def _page(data: bytes, rng: random.Random, *, is_noise: bool) -> bytes:
    begin = rng.randrange(max(1, len(data) // _PAGE)) * _PAGE
    end = min(begin + _PAGE, len(data))
    return data[:begin] + (rng.randbytes(end - begin) if is_noise else bytes(end - begin)) + data[end:]


def _bits(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


_PAGES: Final[Mapping[str, _Damage]] = {
    "a page of noise": partial(_page, is_noise=True),
    "a page of zeros": partial(_page, is_noise=False),
    "an end that is cut off": lambda data, rng: data[: rng.randrange(_PAGE, max(2 * _PAGE, len(data)))],
}


async def corruption(ground: Ground) -> Tally:
    """Try damage to journals, queues and stored samples: data that is read must be true, and losses reported."""
    return await ground.tried(corruption_of(ground.folder, ground.tries, ground.rng), at_once=2)


def corruption_of(folder: Path, tries: int, rng: random.Random) -> Iterator[Attack]:
    """Yield each sort of damage to each sort of file, `tries` times."""
    files = {"journal": (_fill_journal, _read_journal), "queue": (_fill_queue, _read_queue)}
    for (file, ways), (sort, damage), number in product(files.items(), _PAGES.items(), range(tries)):
        name = f"{file}: {sort} {number}"
        yield Attack(name, partial(_repaired, folder / name, *ways, damage, random.Random(rng.getrandbits(32))))
    for (sort, damage), number in product({**_PAGES, "flipped bits": _bits}.items(), range(tries)):
        name = f"samples: {sort} {number}"
        yield Attack(name, partial(_left_out, folder / name, damage, random.Random(rng.getrandbits(32))))


async def _repaired(
    folder: Path,
    fill: Callable[[Path], Path],
    read: Callable[[Path], Sequence[object]],
    damage: _Damage,
    rng: random.Random,
) -> str:
    """Damage a SQLite file, read it, repair it and read it again."""
    path = fill(folder)
    whole = read(path)
    path.write_bytes(damage(path.read_bytes(), rng))
    with suppress(JournalError, StoreFailedError):
        if (found := read(path)) != whole:
            return f"{len(found)} of {len(whole)} are read, and nobody says that others are missing"
    done = repair(path, _NOW)
    saved = read(path)
    if any(one not in whole for one in saved):
        return "what was saved is not what was written"
    return "" if done.lost or saved == whole else f"{len(saved)} of {len(whole)} are saved, and nothing is told as lost"


def _fill_journal(folder: Path) -> Path:
    with closing(Journal(folder, "bench", fsync=False)) as journal:
        for number in range(_SAMPLES):
            _accept(journal, number, _NOW)
    return Journal.file_of(folder, "bench")


def _accept(journal: Journal, number: int, now: float) -> None:
    (task,) = journal.open([Opening(_MODEL, _ENVIRONMENT, now + _INTERVAL_S * number, _INTERVAL_S, 10)])
    assert isinstance(task, Task), "it is opened for the first time"
    told = replace(example_samples(1, 1)[0], task_id=task.task_id, sequence=task.sequence, why="x" * 3_000)
    journal.accept([replace(told, model=_MODEL, environment=_ENVIRONMENT, campaign="bench")], now)


def _read_journal(path: Path) -> Sequence[object]:
    with closing(Journal(path.parents[1], "bench", fsync=False)) as journal:
        journal.check()
        return journal.spooled()


def _fill_queue(folder: Path) -> Path:
    folder.mkdir()
    jobs = [Job(JobSpec(f"job-{n}", "team", "task", f"i{n}", "pool"), n, _NOW + n) for n in range(_JOBS)]
    with closing(open_queue(f"sqlite:///{folder}/queue.db").own("bench")) as queue:
        queue.commit(Changes(new_jobs={job.job_id: job for job in jobs}))
    return folder / "queue.db"


def _read_queue(path: Path) -> Sequence[object]:
    with closing(open_queue(f"sqlite:///{path}").own("bench")) as queue:
        queue.load()
        return sorted(queue.jobs([f"job-{number}" for number in range(_JOBS)]).items())


async def _left_out(folder: Path, damage: _Damage, rng: random.Random) -> str:
    """Damage a file of a sample store: scans and verification must leave it out and report it."""
    store = open_store(str(folder))
    await store.put_batch("bench", example_samples(60, 3))
    whole = set((await store.scan()).frame.rows())
    path = rng.choice(_files(folder))
    path.write_bytes(damage(path.read_bytes(), rng))
    again = open_store(str(folder))
    scan, verified = await again.scan(), await again.verify()
    found = set(scan.frame.rows())
    if not found <= whole:
        return f"{len(found - whole)} samples are read that nobody stored"
    told = scan.problems and verified.problems
    return "" if told or found == whole else f"{len(whole - found)} samples are missing, and nobody says so"
