"""The journal: a campaign's open tasks and unstored samples, in a database that survives any kill.

It holds the due times and sequence numbers of every model and environment, the *open tasks* (assigned, no sample yet)
and the *spool* (samples accepted, not yet visible in the store). One transaction accepts a sample: it closes the task
and spools the row, both or neither. So a task yields at most one sample, and a killed process leaves its unfinished
tasks open for the next one. Several processes may share a journal; each is a *holder*, and the database knows which
are alive: by a locked file each on one machine (SQLite), by leases on many (PostgreSQL).
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
    """The history that a campaign needs when a sampler starts.

    Attributes:
        pairs: records by (model, environment).
        counts: scored samples of the last 24 h, as (time, samples) per minute, by (model, environment).
        pauses: (level, paused until) by model.
    """

    pairs: Mapping[tuple[str, str], PairRecord]
    counts: Mapping[tuple[str, str], Sequence[tuple[float, int]]]
    pauses: Mapping[str, tuple[int, float]]


class TaskState(StrEnum):
    """A task's state in the journal."""

    OPEN = "open"
    STARTED = "started"
    SPOOLED = "spooled"
    UNKNOWN = "unknown"


JOURNAL_LEASE_S: Final = 30.0
"""A holder of a journal shared by several machines counts as dead when it has not renewed its lease for this long."""


class Journal:
    """The journal of one campaign, opened by one holder. Synchronous; used from one thread at a time.

    Lives from `__init__` to `close`. It need not be closed: the next holder takes over what this one left.
    """

    def __init__(
        self, place: JournalPlace, campaign: str, *, fsync: bool = True, lease_s: float = JOURNAL_LEASE_S
    ) -> None:
        """Open the journal of `campaign` at `place`, creating it if it is missing.

        Args:
            place: a folder, or a PostgreSQL database, with the journals of all campaigns.
            campaign: part of every task's identity.
            fsync: wait for the disk when samples are accepted. Without it a kill still loses nothing, a power cut may.
            lease_s: in PostgreSQL, how long this holder counts as alive after its last renewal.

        Raises:
            JournalError: if the place cannot be used, is not a journal, or was written by another version.
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
        """Location of this campaign's journal, for display."""
        self.renew_every_s = self._db.renew_every_s
        """Interval in which `renew` must be called; None if it need not be."""
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
        """Return whether the campaign has a journal at `place`, without creating one.

        Raises:
            JournalError: if the database does not answer, or the folder cannot be read.
        """
        if isinstance(place, PostgresAddress):
            from headgate.storage.journal_postgres import has_schema  # noqa: PLC0415 - of an optional extra

            return has_schema(place, campaign)
        try:
            return (place / plain_name(campaign)).is_dir()
        except OSError as error:
            raise JournalError(f"journal {place} cannot be read: {error.strerror or error}") from error

    @staticmethod
    def file_of(folder: Path, campaign: str) -> Path:
        """Return the path of a campaign's journal, whether or not it exists."""
        return folder / plain_name(campaign) / "journal.db"

    def lease(self) -> tuple[str, str]:
        """Return the key of this process's campaign lease in the store, and the journal's location for display."""
        key = f"{LEASES}{plain_name(self.campaign)}/{meta_of(self._db, 'journal_id')}.{self.holder}"
        return key, f"{self.place} on {socket.gethostname()}"

    def told(self) -> AbstractContextManager[None]:
        """Return a context that raises damage of the journal as a `JournalError`, and other errors unchanged."""
        return self._db.told()

    def check(self) -> None:
        """Read the whole journal; raises `JournalError` if it is damaged."""
        with self._db.told():
            self._db.check()
            self._spool.samples()

    def renew(self) -> None:
        """Renew this holder's lease."""
        self._db.renew()

    def announce(self, run: ServedRun | None = None) -> None:
        """Announce, until the journal is closed, that this process serves a run's monitoring API.

        Without a run, repeat the last announcement, which is lost if the disk was full.
        """
        self._said = run.said() if run is not None else self._said
        if self._said:
            self._db.holders.announce(self._said)

    def interrupt(self) -> None:
        """Interrupt another thread's call that waits for a database; callable from any thread."""
        self._db.interrupt()

    # Tasks.

    def open(self, openings: Sequence[Opening]) -> list[Task | AlreadyTaken]:
        """Assign each opening its sequence number and record its task as open, in one transaction; results in order."""
        with self._transaction():
            self._refresh()
            self._pairs.look_up((opening.model, opening.environment) for opening in openings)
            # Openings numbered by their source, as far as these numbers were not assigned before.
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
        """Close tasks without a sample, because their model has left the roster."""
        mine = {self._positions[task_id]: task_id for task_id in task_ids if task_id in self._positions}
        with self._transaction():
            held = self._held(mine)
            self._db.many("close_task", [(position,) for position in held])
            self._db.many("forget_given", [(mine[position],) for position in held])
            self.batches.forget(mine[position] for position in held)
        for task_id in mine.values():
            del self._positions[task_id]

    def adopt(self, environments: Iterable[str], models: Iterable[str]) -> list[Task]:
        """Take over the open tasks of dead or departed holders in these environments and models, and their spool.

        Tasks in progress here that this holder lost because it was considered dead become its own again, and are not
        returned. Withdrawn tasks are closed.
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
        """Return a task's state, whichever process holds it. O(open tasks and spooled samples): for commands only."""
        for model, environment, sequence, stage, started in self._db.run("open_identities"):
            if task_id_of(model, environment, sequence, stage, self.campaign) == task_id:
                return TaskState.STARTED if started else TaskState.OPEN
        is_spooled = any(sample.task_id == task_id for sample in self._spool.samples())
        return TaskState.SPOOLED if is_spooled else TaskState.UNKNOWN

    def open_cells(self) -> frozenset[tuple[str, str, int]]:
        """Return model, environment and sequence of each open task of any holder."""
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
        """Make samples durable (fsync) and close their tasks; return the ids of the accepted ones.

        A sample whose task this holder does not, or no longer, hold is not accepted: another one was, or will be.

        Args:
            samples: samples of episodes that have ended.
            now: wall time in seconds.
            started: tasks whose episodes have begun; if this process dies, that counts as an attempt of theirs.
            rested: tasks that have begun but only wait, so that a death of the process does not count.
            spent: spending by model since it was last reported, so that others learn of it no later than of the sample.
        """
        found = {s.task_id: (self._positions[s.task_id], s) for s in samples if s.task_id in self._positions}
        with self._transaction(durable=bool(samples)):
            # Most episodes have already ended, and need not be recorded as begun.
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
        """Return an unconfirmed batch, else a new one of the oldest rows; None when the spool is empty."""
        with self._transaction():
            batch_id = self._spool.assign(at_most)
        return None if batch_id is None else self._spool.batch(batch_id)

    def batch_stored(self, batch_id: BatchId) -> None:
        """Remove a batch that is visible in the store."""
        with self._transaction():
            self._spool.remove(batch_id)

    def spooled(self) -> list[Sample]:
        """Return all holders' samples that are accepted but not yet confirmed by the store."""
        return self._spool.samples()

    # History.

    def is_new(self) -> bool:
        """Return whether `restore` has yet to run: the journal is new, or was repaired."""
        return meta_of(self._db, "restored_at") is None

    def reconcile(self, now: float, due_s: Mapping[str, float]) -> tuple[float, int]:
        """Set times implausibly far after wall time `now` to `now`; return the largest offset and their number.

        `due_s` is, by environment, how far ahead the due time last taken may be: a pair's first may be in the future.

        Raises:
            ClockDisagreesError: if another process of the journal is running with a clock ahead of this one.
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
        """Initialise a new journal from the store; does nothing if that was done before.

        Args:
            pairs: (model, environment, next sequence number, end of the last sample).
            counts: (model, environment, time, scored samples) of the last 24 h.
            now: wall time in seconds.
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
        """Add scored samples (model, environment, wall time of their end, number) to the counts; negative subtracts."""
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
        """Return whether to send a notice: True unless a process of the journal sent it since `again_before`."""
        values = {"key": key, "at": at, "again_before": again_before}
        with self._transaction():
            return bool(self._db.run("claim_notice", values).rowcount == 1)

    def release_notice(self, key: str) -> bool:
        """Remove a notice whose cause has ended; return whether it had been sent."""
        with self._transaction():
            return bool(self._db.run("release_notice", {"key": key}).rowcount == 1)

    def told_notices(self) -> list[str]:
        """Return the keys of the notices that were sent and whose causes have not ended."""
        return [key for (key,) in self._db.run("told_notices")]

    def exchange_spending(self, reports: Mapping[str, SpendingReport], now: float) -> dict[str, SpendingAnswer]:
        """Report spending by model and request grants; return an answer for each model with a request or with news.

        All processes of the journal share the same 24 h budget; dead ones lose their grants.
        """
        with self._transaction():
            exchange = self._spending.exchange(reports, now)
        return self._spending.done(exchange)

    def share_limits(self, reports: Mapping[LimitKey, LimitReport], now: float) -> dict[LimitKey, LimitShare]:
        """Report what was learnt about providers' limits; return this process's share of each known limit."""
        if not any(each.limit or each.is_rated for each in reports.values()) and self.limits.is_empty():
            return {}
        with self._transaction():
            return self.limits.share(reports, now)

    def pauses(self) -> dict[str, tuple[int, float]]:
        """Return (level, paused until) by model, whichever process paused the model."""
        return {model: (level, until) for model, level, until in self._db.run("pauses")}

    def steer(self, order: ControlOrder, by: str, now: float, *, dry_run: bool = False) -> tuple[ControlChange, bool]:
        """Change a control durably, or give an order; return the change, and whether it changes anything.

        If it does not, the returned change is the one in force. A `dry_run` writes nothing. Raises as
        `ControlBook.ordered`.
        """
        if dry_run:
            return self.controls.ordered(order, by, now)
        with self._transaction(durable=True):
            change, is_new = self.controls.ordered(order, by, now)
            if is_new:
                self.controls.add(change)
        return change, is_new

    def is_shared(self) -> bool:
        """Return whether another living process has the journal open."""
        return self._db.holders.others()

    def open_count(self) -> int:
        """Return the number of open tasks of all holders."""
        return int(self._db.run("open_count").fetchone()[0])

    def spool_count(self) -> int:
        """Return the number of spooled samples of all holders."""
        return self._spool.count()

    def scrub(self) -> None:
        """Erase removed data from the disk."""
        self._db.scrub()

    def close(self) -> None:
        """Leave open tasks and spooled samples to the next holder, and close; idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        with contextlib.suppress(*JOURNAL_REFUSED, JournalError), self._transaction(durable=True):
            # A full disk must not keep the process from ending; others notice the dead holder anyway.
            self._db.run("abandon_tasks", {"holder": self.holder})
            self._db.run("abandon_samples", {"holder": self.holder})
            self.batches.abandon(self.holder)
            self._spending.leave()
            self.limits.leave()
        self._db.close()

    # Inside.

    def _refresh(self) -> None:
        """Reread what other processes may have changed: sequence numbers of pairs, and positions of open tasks."""
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
        """Return the task of an opening and add its row to `rows`; removes its id from `given`."""
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
        """Return whether a task numbered by its source is open already, under the same number from the sampler."""
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
        """Run one write transaction; `durable` waits for the disk, else a power cut, but no kill, may undo it."""
        try:
            with self._db.transaction(durable=durable):
                yield
        except BaseException:
            self._pairs.forget()
            self._spool.forget()
            raise

    def _bury_dead(self) -> None:
        """Free what dead holders left, whose lock can be taken or whose file is missing.

        Tasks that were running when the process died may have killed it, so that counts as an attempt.
        """
        for (holder,) in self._db.run("holders").fetchall():
            if self._db.holders.is_dead(holder):
                self._db.run("count_deaths", {"holder": holder})
                self._db.run("abandon_tasks", {"holder": holder})
                self._db.run("abandon_samples", {"holder": holder})
                self.batches.abandon(holder)
