"""The journal: what a campaign owes and what it has, in one local SQLite file that survives any kill.

It holds the due times and sequence numbers of every model and environment, the *open tasks* (given out, no sample yet)
and the *spool* (samples accepted, not yet visible in the store). A sample is accepted by one transaction that closes
its task and spools its row: either both happen or neither, so a task yields one sample at most, and a killed process
leaves its unfinished tasks open for the next one. Several processes may share a journal; each is a *holder* with a
locked file, and the operating system frees that lock when the process dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import orjson

from headgate.core import DAY_S, BatchId, HolderId, Sample, Task, errors, new_holder_id, sample_task

SCHEMA_VERSION: Final = "1"
_SAMPLE_FIELDS: Final = frozenset(field.name for field in fields(Sample))


@dataclass(frozen=True, slots=True)
class Opening:
    """A request to open one task.

    Attributes:
        due_at: the due time that this task takes; wall seconds.
        interval_s: spacing of dues; a due time less than half of it after the last one taken is the same due time.
        data_length: tasks of the environment, for the index.
        sequence: when the source of the task counts itself; None takes the next number.
    """

    model: str
    environment: str
    due_at: float
    interval_s: float
    data_length: int
    weight: float = 1.0
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class AlreadyTaken:
    """Another process of this journal has taken the due time."""

    model: str
    environment: str
    last_due: float | None


@dataclass(frozen=True, slots=True)
class PairRecord:
    """One model in one environment: the next sequence number and the due time last taken."""

    model: str
    environment: str
    next_sequence: int
    last_due: float | None


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


@dataclass(frozen=True, slots=True)
class SpoolState:
    """This holder's spool: rows, when the oldest row without a batch was accepted, rows in a batch already."""

    rows: int
    oldest_at: float | None
    assigned: int


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """Rows that are stored together under one id; the same id always names the same rows."""

    batch_id: BatchId
    samples: tuple[Sample, ...]


class Journal:
    """The journal of one campaign, opened by one holder. Synchronous; used from one thread at a time.

    Lives from `__init__` to `close`. Not closing it is legal: the next holder takes over what this one left.
    """

    def __init__(self, folder: Path, campaign: str, *, fsync: bool = True) -> None:
        """Open the journal of `campaign` in `folder`, which is made when it is missing.

        Args:
            folder: holds the journals of all campaigns.
            campaign: part of every task's identity.
            fsync: wait for the disk when samples are accepted. Without it a kill still loses nothing, a power cut may.

        Raises:
            JournalError: if the folder cannot be used, the file is no journal, or a newer version wrote it.
        """
        self.campaign = campaign
        self.holder: HolderId = new_holder_id()
        self._fsync = fsync
        self._sql = _statements()
        self._folder = folder / _file_name(campaign)
        try:
            self._locks = self._folder / "holders"
            self._locks.mkdir(parents=True, exist_ok=True)
            self._lock_file = self._take_lock(self.holder)
            self._db = sqlite3.connect(
                self._folder / "journal.db", timeout=30.0, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise errors.JournalError(f"journal {self._folder} cannot be opened: {error}") from error
        self._is_open = True

    @property
    def path(self) -> Path:
        """The folder that holds this campaign's journal."""
        return self._folder

    # Tasks.

    def open(self, openings: Sequence[Opening]) -> list[Task | AlreadyTaken]:
        """Give each opening its sequence number and record it as open, in one transaction; results in order."""
        with self._transaction():
            return [self._open_one(opening) for opening in openings]

    def withdraw(self, task_ids: Iterable[str]) -> None:
        """Close tasks without a sample, for good: their model has left the roster."""
        with self._transaction():
            self._db.executemany(self._sql["close_task"], [(task_id,) for task_id in task_ids])

    def adopt(self, environments: Iterable[str], models: Iterable[str]) -> list[Task]:
        """Take over open tasks of dead or departed holders in these environments and models, and their spool."""
        with self._transaction():
            self._bury_dead()
            self._run("adopt_samples", holder=self.holder)
            wanted_models, wanted_environments = set(models), set(environments)
            mine: list[Task] = []
            for row in self._run("unheld_tasks").fetchall():
                task_id, model, environment, sequence, data_length, due_at, weight, attempt = row
                if model in wanted_models and environment in wanted_environments:
                    self._db.execute(self._sql["adopt_task"], (self.holder, task_id))
                    task = self._task(model, environment, sequence, data_length, due_at, weight)
                    mine.append(replace(task, attempt=attempt + 1))
            return mine

    # Samples.

    def accept(self, samples: Sequence[Sample], now: float) -> set[str]:
        """Make samples durable (fsync) and close their tasks; return the ids accepted.

        A sample whose task this holder does not hold (any more) is not accepted: another one was, or will be.
        """
        ids = json.dumps([sample.task_id for sample in samples])
        with self._transaction(durable=True):
            held = {row[0] for row in self._run("held_among", holder=self.holder, task_ids=ids)}
            fresh = {s.task_id: s for s in samples if s.task_id in held}
            self._db.executemany(self._sql["close_task"], [(task_id,) for task_id in fresh])
            self._db.executemany(
                self._sql["spool_sample"],
                [(s.task_id, orjson.dumps(s), now, self.holder) for s in fresh.values()],
            )
            counted = Counter((s.model, s.environment, int(s.finished_at // 60)) for s in fresh.values() if s.is_scored)
            self._db.executemany(self._sql["count"], [(*key, n) for key, n in counted.items()])
        return set(fresh)

    def spool_state(self) -> SpoolState:
        """Return the state of this holder's spool."""
        rows, oldest, assigned = self._run("spool_state", holder=self.holder).fetchone()
        return SpoolState(rows, oldest, assigned)

    def next_batch(self, at_most: int) -> SpooledBatch | None:
        """Return an unconfirmed batch, else one of the oldest rows; None when the spool is empty."""
        with self._transaction():
            row = self._run("assigned_batch", holder=self.holder).fetchone()
            if row is None:
                batch_id = BatchId(f"b-{uuid.uuid4().hex}")
                changed = self._run("assign_batch", holder=self.holder, batch_id=batch_id, rows=at_most).rowcount
                if changed == 0:
                    return None
            else:
                batch_id = BatchId(row[0])
        rows = self._run("batch_rows", batch_id=batch_id).fetchall()
        return SpooledBatch(batch_id, tuple(_sample(row[0]) for row in rows))

    def batch_stored(self, batch_id: BatchId) -> None:
        """Forget a batch that is visible in the store."""
        with self._transaction():
            self._run("remove_batch", batch_id=batch_id)

    def spooled(self) -> list[Sample]:
        """Return every sample that is accepted and not yet confirmed by the store, of all holders."""
        return [_sample(row[0]) for row in self._run("spooled_samples")]

    # History.

    def is_new(self) -> bool:
        """Return whether nothing was ever restored into or sampled from this journal."""
        return self._run("meta", key="restored_at").fetchone() is None

    def restore(
        self,
        pairs: Iterable[tuple[str, str, int, float | None]],
        counts: Iterable[tuple[str, str, float, int]],
        now: float,
    ) -> None:
        """Take over what the store knows.

        Args:
            pairs: (model, environment, next sequence number, end of the last sample).
            counts: (model, environment, time, scored samples) of the last 24 h.
            now: wall seconds.
        """
        with self._transaction(durable=True):
            self._db.executemany(self._sql["raise_pair"], list(pairs))
            self._db.executemany(self._sql["count"], [(m, e, int(at // 60), n) for m, e, at, n in counts])
            self._run("set_meta", key="restored_at", value=repr(now))

    def history(self, now: float) -> JournalHistory:
        """Return sequence numbers, due times, the counts of the last 24 h, and pauses."""
        since = int((now - DAY_S) // 60)
        with self._transaction():
            self._run("forget_counts", minute=since)
        counts: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for model, environment, minute, samples in self._run("counts_since", minute=since):
            counts.setdefault((model, environment), []).append((minute * 60.0, samples))
        pairs = [PairRecord(*row) for row in self._run("pairs")]
        return JournalHistory(
            pairs={(pair.model, pair.environment): pair for pair in pairs},
            counts=counts,
            pauses={model: (level, until) for model, level, until in self._run("pauses")},
        )

    def record_pause(self, model: str, level: int, until: float) -> None:
        """Remember a pause across restarts."""
        with self._transaction():
            self._run("set_pause", model=model, level=level, until=until)

    def clear_pause(self, model: str) -> None:
        """Forget a pause."""
        with self._transaction():
            self._run("clear_pause", model=model)

    def open_count(self) -> int:
        """Return how many tasks are open, of all holders."""
        return int(self._run("open_count").fetchone()[0])

    def spool_count(self) -> int:
        """Return how many samples are spooled, of all holders."""
        return int(self._run("spool_count").fetchone()[0])

    def close(self) -> None:
        """Leave open tasks and spooled samples to the next holder, and close. Legal more than once."""
        if not self._is_open:
            return
        self._is_open = False
        with contextlib.suppress(sqlite3.Error), self._transaction(durable=True):
            # A full disk must not keep the process from ending: the dead holder's lock says the same.
            self._run("abandon_tasks", holder=self.holder)
            self._run("abandon_samples", holder=self.holder)
        self._db.close()
        (self._locks / self.holder).unlink(missing_ok=True)
        os.close(self._lock_file)

    # Inside.

    def _open_one(self, opening: Opening) -> Task | AlreadyTaken:
        row = self._db.execute(self._sql["pair"], (opening.model, opening.environment)).fetchone()
        next_sequence, last_due = row or (0, None)
        if opening.sequence is None:
            sequence = next_sequence
            if last_due is not None and opening.due_at < last_due + opening.interval_s / 2:
                return AlreadyTaken(opening.model, opening.environment, last_due)
        else:
            sequence = opening.sequence
        task = self._task(
            opening.model, opening.environment, sequence, opening.data_length, opening.due_at, opening.weight
        )
        is_spooled = self._db.execute(self._sql["spooled_task"], (task.task_id,)).fetchone() is not None
        row_values = (
            task.task_id, task.model, task.environment, sequence, opening.data_length, task.due_at, task.weight,
            self.holder,
        )  # fmt: skip
        if is_spooled or self._db.execute(self._sql["open_task"], row_values).rowcount == 0:
            return AlreadyTaken(opening.model, opening.environment, last_due)
        self._db.execute(
            self._sql["set_pair"],
            (opening.model, opening.environment, max(next_sequence, sequence + 1), opening.due_at),
        )
        return task

    def _task(
        self, model: str, environment: str, sequence: int, data_length: int, due_at: float, weight: float
    ) -> Task:
        return sample_task(
            campaign=self.campaign,
            model=model,
            environment=environment,
            sequence=sequence,
            data_length=data_length,
            due_at=due_at,
            weight=weight,
        )

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA temp_store = MEMORY")
        self._db.executescript(self._sql["schema"])
        version = self._run("meta", key="schema_version").fetchone()
        if version is None:
            self._run("set_meta", key="schema_version", value=SCHEMA_VERSION)
        elif version[0] != SCHEMA_VERSION:
            raise errors.JournalError(
                f"journal {self._folder} has format {version[0]}, this version reads {SCHEMA_VERSION}",
                next_step="Run the version of Headgate that wrote it, or choose another folder with --journal.",
            )

    def _run(self, name: str, **values: object) -> sqlite3.Cursor:
        return self._db.execute(self._sql[name], values)

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        """One write transaction; `durable` waits for the disk, otherwise a power cut may undo it, a kill may not."""
        durable = durable and self._fsync
        if durable:
            self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        else:
            self._db.execute("COMMIT")
        finally:
            if durable:
                self._db.execute("PRAGMA synchronous = NORMAL")

    def _take_lock(self, holder: str) -> int:
        handle = os.open(self._locks / holder, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle

    def _bury_dead(self) -> None:
        """Free what holders left whose process is gone: their lock can be taken, or their file is missing."""
        for (holder,) in self._run("holders").fetchall():
            if holder != self.holder and self._is_dead(holder):
                self._run("abandon_tasks", holder=holder)
                self._run("abandon_samples", holder=holder)

    def _is_dead(self, holder: str) -> bool:
        try:
            handle = os.open(self._locks / holder, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            (self._locks / holder).unlink(missing_ok=True)
            return True
        finally:
            os.close(handle)


def _statements() -> dict[str, str]:
    text = resources.files(__package__).joinpath("journal.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def _file_name(campaign: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "~", campaign)


def _sample(row: bytes) -> Sample:
    content: dict[str, Any] = orjson.loads(row)
    return Sample(**{name: value for name, value in content.items() if name in _SAMPLE_FIELDS})
