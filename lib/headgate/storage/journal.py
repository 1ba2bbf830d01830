"""The journal: what a campaign owes and what it has, in a database that survives any kill.

It holds the due times and sequence numbers of every model and environment, the *open tasks* (given out, no sample yet)
and the *spool* (samples accepted, not yet visible in the store). A sample is accepted by one transaction that closes
its task and spools its row: either both happen or neither, so a task yields one sample at most, and a killed process
leaves its unfinished tasks open for the next one. Several processes may share a journal; each is a *holder*, and the
database knows which of them live: by a locked file each on one machine (SQLite), by leases on many (PostgreSQL).
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from headgate.core import (
    DAY_S,
    BatchId,
    HolderId,
    Sample,
    Spending,
    Task,
    credible,
    new_holder_id,
    sample_task,
    task_id_of,
)
from headgate.core.errors import JournalError
from headgate.durable.databases import PostgresAddress
from headgate.storage.controls import ControlBook, ControlChange, ControlOrder
from headgate.storage.journal_database import (
    JOURNAL_REFUSED,
    JournalDatabase,
    JournalPlace,
    JournalTimes,
    meta_of,
    plain_name,
)
from headgate.storage.journal_runs import ServedRun
from headgate.storage.journal_sqlite import SqliteJournal
from headgate.storage.limits import LimitBook, LimitKey, LimitReport, LimitShare
from headgate.storage.objects import LEASES
from headgate.storage.pairs import AlreadyTaken, Opening, PairBook, PairRecord
from headgate.storage.request_batches import RequestBatches
from headgate.storage.spending import NOTHING_SPENT, SpendingAnswer, SpendingBook, SpendingReport
from headgate.storage.spool import Spool, SpooledBatch, SpoolState


@dataclass(frozen=True, slots=True)
class JournalHistory:
    """What a campaign needs of its past when a sampler starts.

    Attributes:
        pairs: by (model, environment).
        counts: scored samples of the last 24 h, as (time, samples) per minute.
        pauses: (level, paused until) by model.
    """

    pairs: Mapping[tuple[str, str], PairRecord]
    counts: Mapping[tuple[str, str], Sequence[tuple[float, int]]]
    pauses: Mapping[str, tuple[int, float]]


class TaskState(StrEnum):
    """Where the journal knows a task to be."""

    OPEN = "open"
    STARTED = "started"
    SPOOLED = "spooled"
    UNKNOWN = "unknown"


JOURNAL_LEASE_S: Final = 30.0
"""A holder of a journal that machines share is dead when it has not been heard of for so long."""


class Journal:
    """The journal of one campaign, opened by one holder. Synchronous; used from one thread at a time.

    Lives from `__init__` to `close`. Not closing it is legal: the next holder takes over what this one left.
    """

    def __init__(
        self, place: JournalPlace, campaign: str, *, fsync: bool = True, lease_s: float = JOURNAL_LEASE_S
    ) -> None:
        """Open the journal of `campaign` at `place`, which is made when it is missing.

        Args:
            place: a folder, or a PostgreSQL database, that holds the journals of all campaigns.
            campaign: part of every task's identity.
            fsync: wait for the disk when samples are accepted. Without it a kill still loses nothing, a power cut may.
            lease_s: in a database, how long this holder counts as alive after it was last heard of.

        Raises:
            JournalError: if the place cannot be used, is no journal, or another version wrote it.
        """
        self.campaign = campaign
        self.holder: HolderId = new_holder_id()
        self._positions: dict[str, int] = {}
        self._next_position = 1
        self._db: JournalDatabase
        if isinstance(place, PostgresAddress):
            from headgate.storage.journal_postgres import PostgresJournal  # noqa: PLC0415 - of an optional extra

            self._db = PostgresJournal(place, campaign, self.holder, fsync=fsync, lease_s=lease_s)
        else:
            self._db = SqliteJournal(self.file_of(place, campaign), campaign, self.holder, fsync=fsync)
        self.place = self._db.place
        """Where this campaign's journal is, for people."""
        self.renew_every_s = self._db.renew_every_s
        """How often `renew` is to be called; None where nobody needs it."""
        self._said = ""
        self._pairs = PairBook(self._db)
        self._spool = Spool(self._db, self.holder)
        self.times = JournalTimes(self._db)
        self.limits = LimitBook(self._db, self.holder)
        self.controls = ControlBook(self._db)
        self._spending = SpendingBook(self._db, self.holder, self.times)
        self.batches = RequestBatches(self._db, self.holder, self._transaction, self._spending)
        self._is_open = True

    @staticmethod
    def is_there(place: JournalPlace, campaign: str) -> bool:
        """Return whether the campaign has a journal at `place`; opening it would make one.

        Raises:
            JournalError: if the database does not answer, or the folder cannot be looked into.
        """
        if isinstance(place, PostgresAddress):
            from headgate.storage.journal_postgres import has_schema  # noqa: PLC0415 - of an optional extra

            return has_schema(place, campaign)
        try:
            return (place / plain_name(campaign)).is_dir()
        except OSError as error:
            raise JournalError(f"journal {place} cannot be looked into: {error.strerror or error}") from error

    @staticmethod
    def file_of(folder: Path, campaign: str) -> Path:
        """Return where the journal of a campaign is, or would be."""
        return folder / plain_name(campaign) / "journal.db"

    def lease(self) -> tuple[str, str]:
        """Return the key of this process's lease of the campaign in the store, and where the journal is, for people."""
        key = f"{LEASES}{plain_name(self.campaign)}/{meta_of(self._db, 'journal_id')}.{self.holder}"
        return key, f"{self.place} on {socket.gethostname()}"

    def told(self) -> AbstractContextManager[None]:
        """Raise damage of what is read inside as a `JournalError`; let all other errors pass."""
        return self._db.told()

    def check(self) -> None:
        """Read all of it; raises `JournalError` if it is damaged."""
        with self._db.told():
            self._db.check()
            self._spool.samples()

    def renew(self) -> None:
        """Tell the other holders that this one is alive."""
        self._db.renew()

    def announce(self, run: ServedRun | None = None) -> None:
        """Say to whoever looks for it that this process serves a run's monitoring API, until the journal is closed.

        Without a run, say again what was said last: nobody heard it while the disk was full.
        """
        self._said = run.said() if run is not None else self._said
        if self._said:
            self._db.holders.announce(self._said)

    def interrupt(self) -> None:
        """Have a call of another thread that waits for a database fail; safe from any thread."""
        self._db.interrupt()

    # Tasks.

    def open(self, openings: Sequence[Opening]) -> list[Task | AlreadyTaken]:
        """Give each opening its sequence number and record it as open, in one transaction; results in order."""
        with self._transaction():
            self._refresh()
            self._pairs.look_up((opening.model, opening.environment) for opening in openings)
            # Of those that their source counts, the ones that were not given before.
            counted = [self._task_of(one, one.sequence).task_id for one in openings if one.sequence is not None]
            given = {task_id for (task_id,) in self._db.each("give", [(task_id,) for task_id in counted])}
            rows: list[tuple[object, ...]] = []
            results = [self._open_one(opening, given, rows) for opening in openings]
            self._pairs.save()
            self._db.many("open_task", rows)
        opened = [result for result in results if isinstance(result, Task)]
        self._positions.update((task.task_id, self._next_position + n) for n, task in enumerate(opened))
        self._next_position += len(opened)
        return results

    def withdraw(self, task_ids: Iterable[str]) -> None:
        """Close tasks without a sample: their model has left the roster."""
        mine = {self._positions[task_id]: task_id for task_id in task_ids if task_id in self._positions}
        with self._transaction():
            held = self._held(mine)
            self._db.many("close_task", [(position,) for position in held])
            self._db.many("forget_given", [(mine[position],) for position in held])
            self.batches.forget(mine[position] for position in held)
        for task_id in mine.values():
            del self._positions[task_id]

    def adopt(self, environments: Iterable[str], models: Iterable[str]) -> list[Task]:
        """Take over open tasks of dead or departed holders in these environments and models, and their spool.

        Tasks that this holder has in hand, and lost because it was thought dead, are its own again, and not returned.
        Those that were withdrawn are closed.
        """
        with self._transaction():
            self._bury_dead()
            self._db.run("forget_withdrawn")
            withdrawn = {position for (position,) in self._db.run("withdrawn")}
            self._db.run("adopt_samples", {"holder": self.holder})
            self.batches.adopt()
            wanted_models, wanted_environments = set(models), set(environments)
            mine: dict[int, Task] = {}
            in_hand = set(self._positions.values())
            adopted: list[tuple[object, ...]] = []
            closed: list[tuple[object, ...]] = []
            given: list[tuple[object, ...]] = []
            for row in self._db.run("unheld_tasks").fetchall():
                position, model, environment, sequence, stage, data_length, due_at, weight, attempt = row
                if position in withdrawn and position not in in_hand:
                    closed.append((position,))
                    given.append((task_id_of(model, environment, sequence, stage, self.campaign),))
                    continue
                is_wanted = model in wanted_models and environment in wanted_environments
                if is_wanted or position in in_hand:
                    adopted.append((self.holder, position))
                if is_wanted and position not in in_hand:
                    opening = Opening(model, environment, due_at, 0.0, data_length, weight, stage=stage)
                    mine[position] = replace(self._task_of(opening, sequence), attempt=attempt)
            self._db.many("adopt_task", adopted)
            self._db.many("close_task", closed)
            self._db.many("forget_given", given)
        self._positions.update((task.task_id, position) for position, task in mine.items())
        return list(mine.values())

    def state_of(self, task_id: str) -> TaskState:
        """Return where a task is, whoever holds it. O(open tasks and spooled samples): for people who ask."""
        for model, environment, sequence, stage, started in self._db.run("open_identities"):
            if task_id_of(model, environment, sequence, stage, self.campaign) == task_id:
                return TaskState.STARTED if started else TaskState.OPEN
        is_spooled = any(sample.task_id == task_id for sample in self._spool.samples())
        return TaskState.SPOOLED if is_spooled else TaskState.UNKNOWN

    def open_cells(self) -> frozenset[tuple[str, str, int]]:
        """Return model, environment and sequence of each open task, whoever holds it."""
        return frozenset(row[:3] for row in self._db.run("open_identities"))

    # Samples.

    def accept(
        self,
        samples: Sequence[Sample],
        now: float,
        *,
        started: Iterable[str] = (),
        rested: Iterable[str] = (),
        spent: Mapping[str, Spending] = NOTHING_SPENT,
    ) -> set[str]:
        """Make samples durable (fsync) and close their tasks; return the ids accepted.

        A sample whose task this holder does not hold (any more) is not accepted: another one was, or will be.

        Args:
            samples: whose episodes have ended.
            now: wall seconds.
            started: tasks whose episodes have begun; should this process die, it is counted on them.
            rested: tasks that have begun, and wait without doing anything: no death of a process counts on them.
            spent: by model, since it was last told: what a sample took is known to others no later than the sample.
        """
        found = {s.task_id: (self._positions[s.task_id], s) for s in samples if s.task_id in self._positions}
        with self._transaction(durable=bool(samples)):
            # An episode that has ended already, most often, need not be noted as begun.
            begun = {self._positions[task_id] for task_id in started if task_id in self._positions}
            begun.difference_update(position for position, _ in found.values())
            self._db.many("start_task", [(position,) for position in begun])
            resting = {self._positions[task_id] for task_id in rested if task_id in self._positions}
            self._db.many("rest_task", [(position,) for position in resting])
            fresh = self._accept(found, now) if found else []
            self.batches.forget(sample.task_id for sample in fresh)
            counted = self._spending.count(spent, now) if spent else None
        if counted is not None:
            self._spending.counted(counted)
        for task_id in found:
            del self._positions[task_id]
        return {sample.task_id for sample in fresh}

    def spool_state(self) -> SpoolState:
        """Return the state of this holder's spool."""
        return self._spool.state()

    def next_batch(self, at_most: int) -> SpooledBatch | None:
        """Return an unconfirmed batch, else one of the oldest rows; None when the spool is empty."""
        with self._transaction():
            batch_id = self._spool.assign(at_most)
        return None if batch_id is None else self._spool.batch(batch_id)

    def batch_stored(self, batch_id: BatchId) -> None:
        """Forget a batch that is visible in the store."""
        with self._transaction():
            self._spool.remove(batch_id)

    def spooled(self) -> list[Sample]:
        """Return every sample that is accepted and not yet confirmed by the store, of all holders."""
        return self._spool.samples()

    # History.

    def is_new(self) -> bool:
        """Return whether nothing was ever restored into or sampled from this journal."""
        return meta_of(self._db, "restored_at") is None

    def reconcile(self, now: float, due_s: Mapping[str, float]) -> tuple[float, int]:
        """Make what lies ahead of wall time `now`, and cannot be true, be now; return how far it lay, and of how many.

        `due_s` says by environment how far ahead the due time last taken may lie: a pair's first may be to come.

        Raises:
            ClockDisagreesError: if another process of the journal is running, and goes by a clock ahead of this one.
        """
        with self._transaction():
            self._refresh()
            found = self.times.reconcile(now, due_s)
            self._pairs.forget()
        return found

    def restore(
        self,
        pairs: Iterable[tuple[str, str, int, float | None]],
        counts: Iterable[tuple[str, str, float, int]],
        now: float,
    ) -> None:
        """Take over what the store knows, once in the life of a journal.

        Args:
            pairs: (model, environment, next sequence number, end of the last sample).
            counts: (model, environment, time, scored samples) of the last 24 h.
            now: wall seconds.
        """
        with self._transaction(durable=True):
            if not self.is_new():
                return  # another process that started at the same time was first
            self._refresh()
            pairs = list(pairs)
            self._pairs.look_up((model, environment) for model, environment, _, _ in pairs)
            for model, environment, next_sequence, ended_at in pairs:
                last_due = None if ended_at is None else credible(ended_at, now)
                self._pairs.raise_to(model, environment, next_sequence, last_due)
            self._pairs.save()
            lived = [count for count in counts if credible(count[2], now) == count[2]]
            self._count((int(at // 60), model, environment, n) for model, environment, at, n in lived)
            self._db.run("set_meta", {"key": "restored_at", "value": repr(now)})

    def history(self, now: float) -> JournalHistory:
        """Return sequence numbers, due times, the counts of the last 24 h, and pauses."""
        since = int((now - DAY_S) // 60)
        with self._transaction():
            if (oldest := self.times.oldest_kept(now)) is not None:
                self._db.run("forget_counts", {"minute": oldest})
        counts: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for model, environment, minute, samples in self._db.run("counts_since", {"minute": since}):
            counts.setdefault((model, environment), []).append((minute * 60.0, samples))
        pairs = self._pairs.records()
        return JournalHistory(
            pairs={(pair.model, pair.environment): pair for pair in pairs},
            counts=counts,
            pauses=self.pauses(),
        )

    def recount(self, counts: Iterable[tuple[str, str, float, int]]) -> None:
        """Count scored samples (model, environment, wall time of their end, how many) in, or out where less than 0."""
        with self._transaction():
            self._refresh()
            self._count((int(at // 60), model, environment, n) for model, environment, at, n in counts)
            self._db.run("forget_no_counts")

    def record_pause(self, model: str, level: int, until: float) -> None:
        """Remember a pause across restarts."""
        with self._transaction():
            self._db.run("set_pause", {"model": model, "level": level, "until": until})

    def clear_pause(self, model: str) -> None:
        """Forget a pause."""
        with self._transaction():
            self._db.run("clear_pause", {"model": model})

    def claim_notice(self, key: str, at: float, again_before: float) -> bool:
        """Return whether a notice is to be told: no process of the journal has, or last before that time."""
        values = {"key": key, "at": at, "again_before": again_before}
        with self._transaction():
            return bool(self._db.run("claim_notice", values).rowcount == 1)

    def release_notice(self, key: str) -> bool:
        """Return whether a notice was told, whose matter has ended now."""
        with self._transaction():
            return bool(self._db.run("release_notice", {"key": key}).rowcount == 1)

    def told_notices(self) -> list[str]:
        """Return the keys of the notices that were told and have not ended."""
        return [key for (key,) in self._db.run("told_notices")]

    def exchange_spending(self, reports: Mapping[str, SpendingReport], now: float) -> dict[str, SpendingAnswer]:
        """Tell what was spent of models, and ask what may be; return the answer for each that is asked or heard about.

        Every process of the journal counts into the same 24 h, and those that have died count no longer as holding any.
        """
        with self._transaction():
            exchange = self._spending.exchange(reports, now)
        return self._spending.done(exchange)

    def share_limits(self, reports: Mapping[LimitKey, LimitReport], now: float) -> dict[LimitKey, LimitShare]:
        """Tell what was learnt of providers' limits; return what may be taken for each of which anything is known."""
        if not any(each.limit or each.is_rated for each in reports.values()) and self.limits.is_empty():
            return {}
        with self._transaction():
            return self.limits.share(reports, now)

    def pauses(self) -> dict[str, tuple[int, float]]:
        """Return (level, paused until) by model, whichever process paused it."""
        return {model: (level, until) for model, level, until in self._db.run("pauses")}

    def steer(self, order: ControlOrder, by: str, now: float, *, dry_run: bool = False) -> tuple[ControlChange, bool]:
        """Change a control durably, or give an order; return the change, and whether it changes anything.

        Where it does not, that is the change in force. A `dry_run` only says so. Raises as `ControlBook.ordered`.
        """
        if dry_run:
            return self.controls.ordered(order, by, now)
        with self._transaction(durable=True):
            change, is_new = self.controls.ordered(order, by, now)
            if is_new:
                self.controls.add(change)
        return change, is_new

    def is_shared(self) -> bool:
        """Return whether another process that lives has it open."""
        return self._db.holders.others()

    def open_count(self) -> int:
        """Return how many tasks are open, of all holders."""
        return int(self._db.run("open_count").fetchone()[0])

    def spool_count(self) -> int:
        """Return how many samples are spooled, of all holders."""
        return self._spool.count()

    def scrub(self) -> None:
        """Have the disk hold nothing of what was removed."""
        self._db.scrub()

    def close(self) -> None:
        """Leave open tasks and spooled samples to the next holder, and close. Legal more than once."""
        if not self._is_open:
            return
        self._is_open = False
        with contextlib.suppress(*JOURNAL_REFUSED, JournalError), self._transaction(durable=True):
            # A full disk must not keep the process from ending: that the holder is gone says the same.
            self._db.run("abandon_tasks", {"holder": self.holder})
            self._db.run("abandon_samples", {"holder": self.holder})
            self.batches.abandon(self.holder)
            self._spending.leave()
            self.limits.leave()
        self._db.close()

    # Inside.

    def _refresh(self) -> None:
        """Take note of what other processes have written: numbers of pairs, and positions of open tasks."""
        if self._pairs.refresh():
            self._next_position = max(self._next_position, 1 + self._db.run("last_position").fetchone()[0])

    def _task_of(self, opening: Opening, sequence: int) -> Task:
        return sample_task(
            campaign=self.campaign,
            model=opening.model,
            environment=opening.environment,
            sequence=sequence,
            stage=opening.stage,
            data_length=opening.data_length,
            due_at=opening.due_at,
            weight=opening.weight,
        )

    def _open_one(self, opening: Opening, given: set[str], rows: list[tuple[object, ...]]) -> Task | AlreadyTaken:
        """Return the task of an opening, with its row added to `rows`; one of `given` is taken out of there."""
        if opening.sequence is None:
            taken = self._pairs.take(opening)
            if isinstance(taken, AlreadyTaken):
                return taken
            pair, sequence = taken
            task = self._task_of(opening, sequence)
        else:
            sequence = opening.sequence
            task = self._task_of(opening, sequence)
            if task.task_id not in given or self._is_open_by_number(task):
                last_due = self._pairs.last_due(opening.model, opening.environment)
                return AlreadyTaken(opening.model, opening.environment, last_due)
            given.remove(task.task_id)
            pair = self._pairs.note(opening, sequence)
        position = self._next_position + len(rows)
        rows.append(
            (position, pair, sequence, task.stage, opening.data_length, task.due_at, task.weight, self.holder)
        )  # fmt: skip
        return task

    def _is_open_by_number(self, task: Task) -> bool:
        """Return whether a task is open that its source counts, since the sampler has given its number."""
        if not self._pairs.was_numbered(task.model, task.environment, task.sequence):
            return False
        pair = self._pairs.key(task.model, task.environment)
        return self._db.run("is_open", (pair, task.sequence, task.stage)).fetchone() is not None

    def _held(self, positions: Iterable[int]) -> set[int]:
        """Return the positions whose tasks this holder still holds."""
        asked = {"holder": self.holder, "positions": json.dumps(list(positions))}
        return {position for (position,) in self._db.run("held_among", asked)}

    def _accept(self, found: Mapping[str, tuple[int, Sample]], now: float) -> list[Sample]:
        """Close tasks and spool their samples; return those whose task this holder still holds."""
        held = self._held(position for position, _ in found.values())
        fresh = [sample for position, sample in found.values() if position in held]
        self._db.many("close_task", [(position,) for position in held])
        self._spool.add(fresh, now)
        counted = Counter((int(s.finished_at // 60), s.model, s.environment) for s in fresh if s.is_scored)
        self._count((minute, model, environment, n) for (minute, model, environment), n in counted.items())
        return fresh

    def _count(self, counted: Iterable[tuple[int, str, str, int]]) -> None:
        """Add to the scored samples of a minute, model and environment."""
        counted = list(counted)
        self._pairs.look_up((model, environment) for _, model, environment, _ in counted)
        key = self._pairs.key
        self._db.many("count", [(minute, key(m, e), samples) for minute, m, e, samples in counted])

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        """One write transaction; `durable` waits for the disk, otherwise a power cut may undo it, a kill may not."""
        try:
            with self._db.transaction(durable=durable):
                yield
        except BaseException:
            self._pairs.forget()
            self._spool.forget()
            raise

    def _bury_dead(self) -> None:
        """Free what holders left whose process is gone: their lock can be taken, or their file is missing.

        What was running when the process died may be why it died, and is counted.
        """
        for (holder,) in self._db.run("holders").fetchall():
            if self._db.holders.is_dead(holder):
                self._db.run("count_deaths", {"holder": holder})
                self._db.run("abandon_tasks", {"holder": holder})
                self._db.run("abandon_samples", {"holder": holder})
                self.batches.abandon(holder)
