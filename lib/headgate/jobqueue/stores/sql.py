"""The common part of the stores in SQL databases: a ledger's queries and writes, and listings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from heapq import merge
from importlib import resources
from itertools import islice
from operator import itemgetter
from threading import Lock
from typing import Any, ClassVar, Final, Literal, Self

from headgate.durable import databases
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.job import Job, JobState, Lane, Place
from headgate.jobqueue.records import (
    CLAIMS_READ,
    Changes,
    FinishedJob,
    Happening,
    HistoryEntry,
    JobQuery,
    Reply,
    Snapshot,
)
from headgate.jobqueue.stores.rows import (
    SEQ_COLUMN,
    Batch,
    Row,
    batches_of,
    flaw_of,
    history_of_row,
    job_of_row,
    resource_of_row,
    storable_text,
)

Dialect = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration step of the tables."""

    version: int
    name: str
    sql: str


@cache
def statements(dialect: Dialect, filters: str = "") -> Mapping[str, str]:
    """Return the statements of a dialect by their names, with `:parameter` in its driver's syntax.

    Args:
        dialect: the database that runs them.
        filters: conditions that replace `{filters}` in the statements that contain it.
    """
    found = {**databases.statements(__package__, "reading.sql"), **databases.statements(__package__, f"{dialect}.sql")}
    columns = found["job_columns"]
    whole = {name: sql.replace("{job_columns}", columns).replace("{filters}", filters) for name, sql in found.items()}
    return whole if dialect == "sqlite" else {name: databases.in_postgres(sql) for name, sql in whole.items()}


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Return the migration steps of a dialect in order."""
    folder = resources.files(__package__).joinpath("migrations", dialect)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(_migration(file.name, file.read_text(encoding="utf-8")) for file in files)


def steps_from(version: int, dialect: Dialect, place: str) -> tuple[Migration, ...]:
    """Return the steps that a database of a version (0: empty) still needs.

    Raises:
        StoreFailedError: when the database is newer than this Headgate.
    """
    known = migrations(dialect)
    newest = known[-1].version
    if version > newest:
        raise StoreFailedError(
            f"The job queue in {place} has tables of version {version}; this Headgate knows version {newest} at most",
            next_step="Use the Headgate that wrote it or a later one; nothing was changed.",
        )
    return tuple(step for step in known if step.version > version)


def check_version(version: int, dialect: Dialect, place: str) -> None:
    """Refuse a database that cannot be read without migration.

    Raises:
        StoreFailedError: when it has no tables of a job queue, or older or newer ones.
    """
    if steps_from(version, dialect, place):
        found = f"tables of version {version}" if version else "no job queue"
        raise StoreFailedError(
            f"There is {found} in {place}",
            next_step="Start the server on it once (`headgate jobqueue serve`), or name another one.",
        )


def _migration(file_name: str, sql: str) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    return Migration(version=int(number), name=name, sql=sql)


Select = Callable[[str, Mapping[str, Any], str], list[Row]]
"""Runs a statement by its name with parameters; the last text replaces its `{filters}`."""

_FIRST: Final = Place(-(2**63), -1, -1)
"""Before every place."""


class Store(ABC):
    """A store of jobs in a SQL database. All methods block; one thread calls them at a time.

    The ledger that owns it keeps jobs in progress and servers in memory, so it sends few queries, and writes all
    changes of a group of operations in one transaction.
    """

    dialect: ClassVar[Dialect]

    def __init__(self, place: object) -> None:
        self._place = place
        self._db: Any = None

    @abstractmethod
    def own(self, owner: str) -> Self:
        """Become the only ledger that writes here, creating or migrating tables as needed.

        Raises:
            StoreInUseError: when another process owns it.
            StoreFailedError: when it cannot be opened or written, or is newer than this Headgate.
        """

    @abstractmethod
    def close(self) -> None:
        """Release ownership and close connections; may be called twice."""

    def load(self) -> Snapshot:
        """Return what a ledger starts from."""
        counts: defaultdict[Lane, dict[JobState, int]] = defaultdict(dict)
        firsts: dict[Lane, Place] = {}
        for team, pool, task, state, count, descending_priority, seq in self._select("counts", {}):
            counts[lane := Lane(team, pool, task)][JobState(state)] = count
            if state == JobState.PENDING:
                firsts[lane] = Place(descending_priority, 0, seq)
        ((last_seq, last_entry),) = self._select("last_numbers", {})
        resources = map(resource_of_row, self._select("resources", {}))
        return Snapshot(
            counts=dict(counts),
            firsts=firsts,
            withdrawn=dict(self._select("withdrawn", {})),
            in_progress=list(map(job_of_row, self._select("in_progress", {}))),
            resources=sorted(resources, key=lambda resource: (resource.spec.pool, resource.index)),
            next_seq=last_seq + 1,
            next_entry=last_entry + 1,
            next_index=dict(self._select("next_indexes", {})),
            last_claims=dict(self._select("last_claims", {"limit": CLAIMS_READ})),
        )

    def jobs(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """Return those of the jobs that exist, by id."""
        asked = self._array([storable_text(job_id) for job_id in job_ids])
        jobs = map(job_of_row, self._select("jobs_by_id", {"job_ids": asked}))
        return {job.job_id: job for job in jobs}

    def pending(self, lane: Lane, after: Place | None, limit: int) -> list[Job]:
        """Return up to `limit` pending jobs of a lane behind a place (None: from the first), by place."""
        of_lane = {name: storable_text(value) for name, value in lane._asdict().items()}
        parameters = {**of_lane, **(after or _FIRST)._asdict(), "limit": limit}
        return list(map(job_of_row, self._select("pending", parameters)))

    def reply(self, key: str) -> Reply | None:
        """Return the stored reply of a key, if any."""
        rows = self._select("reply", {"key": storable_text(key)})
        return Reply(*rows[0]) if rows else None

    def entries(self, job_id: str, what: Happening, limit: int, *, lease_id: str | None = None) -> list[HistoryEntry]:
        """Return the first entries of a kind about a job, or about one lease on it."""
        equal = {"job_id": storable_text(job_id), "what": what.value, "lease_id": storable_text(lease_id or "")}
        of_lease = "" if lease_id is None else "AND lease_id = :lease_id"
        return list(map(history_of_row, self._select("entries_of_job", {**equal, "limit": limit}, of_lease)))

    def commit(self, changes: Changes) -> None:
        """Write all changes durably, or none.

        Raises:
            StoreFailedError: when they could not be written, or it is not known whether they were; the owner reloads.
        """
        if flaw := flaw_of(changes):
            raise StoreFailedError(f"The job queue in {self._place} refused the changes: {flaw}")
        batches = batches_of(changes)
        with self._failing("written"):
            self._write(self._connection(), batches)

    def reader(self) -> Reader:
        """Return a reader with a connection of its own.

        Raises:
            StoreFailedError: when it cannot be opened, or has no job queue or one of another version.
        """
        return Reader(self._opened_to_read, self._read)

    def _opened_to_read(self) -> Any:
        with self._failing("opened"):
            db = self._connected_to_read()
            try:
                check_version(self._version(db), self.dialect, str(self._place))
            except BaseException:
                db.close()
                raise
        return db

    def _connection(self) -> Any:
        if self._db is None:
            raise StoreFailedError(
                f"The job queue in {self._place} is not owned", next_step="Call `own` before reading or writing it."
            )
        return self._db

    def _select(self, name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
        return self._read(self._connection(), name, parameters, filters)

    def _read(self, db: Any, name: str, parameters: Mapping[str, Any], filters: str) -> list[Row]:
        with self._failing("read"):
            return self._selected(db, name, parameters, filters)

    @abstractmethod
    def _failing(self, done: str) -> AbstractContextManager[None]:
        """Raise the driver's errors as StoreFailedError; `done` is what failed, such as "read"."""

    @abstractmethod
    def _connected_to_read(self) -> Any:
        """Return a connection for listings."""

    @abstractmethod
    def _version(self, db: Any) -> int:
        """Return the version of the database's tables, 0 without any."""

    @abstractmethod
    def _selected(self, db: Any, name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
        """Return the rows of a statement."""

    @abstractmethod
    def _array(self, listed: Sequence[str]) -> str:
        """Return texts in the form in which statements take a list as a parameter."""

    @abstractmethod
    def _write(self, db: Any, batches: Sequence[Batch]) -> None:
        """Write all batches or none."""


def check_found(batch: Batch, found: int) -> None:
    """Refuse a batch with rows that are not in the database."""
    if batch.must_match and found != len(batch.rows):
        raise StoreFailedError(f"jobs to be changed: {len(batch.rows)}, but in the database: {found}")


@dataclass(frozen=True, slots=True)
class _Page:
    """What a listing asks for."""

    statement: str
    after: int
    limit: int
    equal: Mapping[str, str | None] = field(default_factory=dict)
    state: JobState | None = None

    def rows(self, select: Select, **also: str) -> list[Row]:
        wanted = {**self.equal, **also}
        equal = {column: storable_text(value) for column, value in wanted.items() if value is not None}
        conditions = [f" AND {column} = :{column}" for column in equal]
        if self.state:
            # In the statement itself, so that SQLite sees that it can use the index of this state.
            conditions.append(f" AND state = '{self.state.value}'")
        return select(self.statement, {**equal, "after": self.after, "limit": self.limit}, "".join(conditions))


class Reader:
    """Listings of committed rows, for people and collectors, over a connection of its own that blocks no writer.

    A listing of several teams or kinds queries each of them separately, where an index starts at the cursor, and merges
    the pages: in one query the database would read every row of the others in between.
    """

    def __init__(self, connect: Callable[[], Any], read: Callable[..., list[Row]]) -> None:
        self._connect = connect
        self._read = read
        self._turn = Lock()  # threads share the connection
        self._db: Any = connect()

    def jobs(self, query: JobQuery) -> list[Job]:
        """Return the jobs of a query, by `seq`."""
        equal = {"task": query.task, "pool": query.pool}
        page = _Page("listed_jobs", query.after, query.limit, equal, query.state)
        return list(map(job_of_row, self._of_teams(page, query.teams, cursor=itemgetter(SEQ_COLUMN))))

    def finished(self, after: int, limit: int, teams: frozenset[str] | None = None) -> list[FinishedJob]:
        """Return jobs completed after an entry of the history, by that entry; a job completed twice shows once."""
        rows = self._of_teams(_Page("finished", after, limit), teams, cursor=itemgetter(0))
        return [FinishedJob(row[0], job_of_row(row[1:])) for row in rows]

    def history(
        self, after: int, limit: int, *, job_id: str | None = None, what: Iterable[Happening] = ()
    ) -> list[HistoryEntry]:
        """Return entries greater than `after`, in order; `what` empty means every kind."""
        page = _Page("history", after, limit, {"job_id": job_id})
        kinds = sorted(set(what))
        each = [page.rows(self._select, what=kind.value) for kind in kinds] if kinds else [page.rows(self._select)]
        return list(map(history_of_row, _first(limit, each, itemgetter(0))))

    def close(self) -> None:
        """Close its connection; may be called twice."""
        with self._turn:
            self._drop()

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _select(self, name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
        with self._turn:
            if self._db is None:
                self._db = self._connect()
            try:
                return self._read(self._db, name, parameters, filters)
            except StoreFailedError:
                self._drop()  # a listing changes nothing: the next one opens a new connection
                raise

    def _of_teams(self, page: _Page, teams: frozenset[str] | None, cursor: Callable[[Row], int]) -> list[Row]:
        if teams is None:
            return page.rows(self._select)
        return _first(page.limit, [page.rows(self._select, team=team) for team in sorted(teams)], cursor)


def _first(limit: int, pages: list[list[Row]], cursor: Callable[[Row], int]) -> list[Row]:
    return list(islice(merge(*pages, key=cursor), limit))
