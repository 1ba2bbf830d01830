"""The journal: what a campaign owes and what it has, in one local SQLite file that survives any kill.

It holds the due times and sequence numbers of every model and environment, the *open tasks* (given out, no sample yet)
and the *spool* (samples accepted, not yet visible in the store). A sample is accepted by one transaction that closes
its task and spools its row: either both happen or neither, so a task yields one sample at most, and a killed process
leaves its unfinished tasks open for the next one. Several processes may share a journal; each is a *holder* with a
locked file, and the operating system frees that lock when the process dies, however it dies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
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
from headgate.storage.holders import Holders

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
    stage: str = "sample"


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
            with contextlib.ExitStack() as undo:
                self._holders = Holders(self._folder / "holders", self.holder)
                undo.callback(self._holders.leave)
                self._db = sqlite3.connect(
                    self._folder / "journal.db", timeout=30.0, isolation_level=None, check_same_thread=False
                )
                undo.callback(self._db.close)
                self._prepare()
                undo.pop_all()
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
        """Close tasks without a sample: their model has left the roster."""
        closed = [(task_id,) for task_id in task_ids]
        with self._transaction():
            self._db.executemany(self._sql["close_task"], closed)
            self._db.executemany(self._sql["forget_given"], closed)

    def adopt(self, environments: Iterable[str], models: Iterable[str]) -> list[Task]:
        """Take over open tasks of dead or departed holders in these environments and models, and their spool."""
        with self._transaction():
            self._bury_dead()
            self._run("adopt_samples", holder=self.holder)
            wanted_models, wanted_environments = set(models), set(environments)
            mine: list[Task] = []
            for row in self._run("unheld_tasks").fetchall():
                task_id, model, environment, sequence, stage, data_length, due_at, weight, attempt = row
                if model in wanted_models and environment in wanted_environments:
                    self._db.execute(self._sql["adopt_task"], (self.holder, task_id))
                    task = self._task(model, environment, sequence, stage, data_length, due_at, weight)
                    mine.append(replace(task, attempt=attempt))
            return mine

    # Samples.

    def accept(self, samples: Sequence[Sample], now: float, *, started: Iterable[str] = ()) -> set[str]:
        """Make samples durable (fsync) and close their tasks; return the ids accepted.

        A sample whose task this holder does not hold (any more) is not accepted: another one was, or will be.

        Args:
            samples: whose episodes have ended.
            now: wall seconds.
            started: tasks whose episodes have begun; should this process die, it is counted on them.
        """
        ids = json.dumps([sample.task_id for sample in samples])
        with self._transaction(durable=bool(samples)):
            # An episode that has ended already, most often, need not be noted as begun.
            begun = set(started).difference(sample.task_id for sample in samples)
            self._db.executemany(self._sql["start_task"], [(task_id,) for task_id in begun])
            if not samples:
                return set()
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
        """Take over what the store knows, once in the life of a journal.

        Args:
            pairs: (model, environment, next sequence number, end of the last sample).
            counts: (model, environment, time, scored samples) of the last 24 h.
            now: wall seconds.
        """
        with self._transaction(durable=True):
            if not self.is_new():
                return  # another process that started at the same time was first
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
        self._holders.leave()

    # Inside.

    def _open_one(self, opening: Opening) -> Task | AlreadyTaken:
        sequence = self._next_number(opening) if opening.sequence is None else opening.sequence
        if sequence is None:
            return self._already_taken(opening)
        task = self._task(
            opening.model,
            opening.environment,
            sequence,
            opening.stage,
            opening.data_length,
            opening.due_at,
            opening.weight,
        )
        if opening.sequence is not None and not self._give(task, opening):
            return self._already_taken(opening)
        values = (
            task.task_id, task.model, task.environment, sequence, task.stage, opening.data_length, task.due_at,
            task.weight, self.holder,
        )  # fmt: skip
        is_new = self._db.execute(self._sql["open_task"], values).rowcount == 1
        return task if is_new else self._already_taken(opening)

    def _next_number(self, opening: Opening) -> int | None:
        """Take the next number of a pair; None when the due time was taken already."""
        values = (opening.model, opening.environment, opening.due_at, opening.interval_s / 2)
        row = self._db.execute(self._sql["take_number"], values).fetchone()
        return None if row is None else int(row[0])

    def _give(self, task: Task, opening: Opening) -> bool:
        """Note that a task which its source counts was given; False when it was before."""
        if self._db.execute(self._sql["give"], (task.task_id,)).rowcount == 0:
            return False
        self._db.execute(self._sql["note_number"], (task.model, task.environment, task.sequence + 1, opening.due_at))
        return True

    def _already_taken(self, opening: Opening) -> AlreadyTaken:
        row = self._db.execute(self._sql["last_due"], (opening.model, opening.environment)).fetchone()
        return AlreadyTaken(opening.model, opening.environment, row[0] if row else None)

    def _task(
        self,
        model: str,
        environment: str,
        sequence: int,
        stage: str,
        data_length: int,
        due_at: float,
        weight: float,
    ) -> Task:
        return sample_task(
            campaign=self.campaign,
            model=model,
            environment=environment,
            sequence=sequence,
            stage=stage,
            data_length=data_length,
            due_at=due_at,
            weight=weight,
        )

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA temp_store = MEMORY")
        is_made = self._db.execute(self._sql["has_meta"]).fetchone() is not None
        version = self._run("meta", key="schema_version").fetchone() if is_made else None
        if version is not None and version[0] != SCHEMA_VERSION:
            raise errors.JournalError(
                f"journal {self._folder} has format {version[0]}, this version reads {SCHEMA_VERSION}",
                next_step="Run the version of Headgate that wrote it, or choose another folder with --journal.",
            )
        self._db.executescript(self._sql["schema"])
        self._run("set_meta_once", key="schema_version", value=SCHEMA_VERSION)
        self._run("set_meta_once", key="campaign", value=self.campaign)
        owner = self._run("meta", key="campaign").fetchone()[0]
        if owner != self.campaign:
            raise errors.JournalError(f"journal {self._folder} belongs to campaign {owner!r}, not {self.campaign!r}")

    def _run(self, name: str, **values: object) -> sqlite3.Cursor:
        return self._db.execute(self._sql[name], values)

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        """One write transaction; `durable` waits for the disk, otherwise a power cut may undo it, a kill may not."""
        durable = durable and self._fsync
        if durable:
            self._db.execute("PRAGMA synchronous = FULL")
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # SQLite ends some failed transactions itself and leaves others open, a COMMIT on a full disk among them.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        finally:
            if durable:
                self._db.execute("PRAGMA synchronous = NORMAL")

    def _bury_dead(self) -> None:
        """Free what holders left whose process is gone: their lock can be taken, or their file is missing.

        What was running when the process died may be why it died, and is counted.
        """
        for (holder,) in self._run("holders").fetchall():
            if self._holders.is_dead(holder):
                self._run("count_deaths", holder=holder)
                self._run("abandon_tasks", holder=holder)
                self._run("abandon_samples", holder=holder)


def _statements() -> dict[str, str]:
    text = resources.files(__package__).joinpath("journal.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def _file_name(campaign: str) -> str:
    """Return a folder name for a campaign: another one for every name, and no longer than file systems allow."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "~", campaign)
    if plain == campaign and plain.strip("."):
        return plain
    return f"{plain}~{hashlib.blake2b(campaign.encode(), digest_size=6).hexdigest()}"


def _sample(row: bytes) -> Sample:
    content: dict[str, Any] = orjson.loads(row)
    return Sample(**{name: value for name, value in content.items() if name in _SAMPLE_FIELDS})
