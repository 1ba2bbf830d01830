"""What both SQL stores read, for the ledger and for listings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from headgate.jobqueue.job import Job, JobState, Lane, Place
from headgate.jobqueue.port import FinishedJob, Happening, HistoryEntry, JobQuery, Reply, Snapshot
from headgate.jobqueue.stores.rows import Row, history_of_row, job_of_row, resource_of_row, storable_text

Select = Callable[[str, Mapping[str, Any], str], list[Row]]
"""Runs a statement by its name with parameters; the last text stands in place of its `{filters}`."""

_FIRST: Final = Place(-(2**63), -1, -1)
"""Before every place."""


def snapshot(select: Select) -> Snapshot:
    """Return what a ledger starts from."""
    counts: defaultdict[Lane, dict[JobState, int]] = defaultdict(dict)
    for team, pool, task, state, count in select("counts", {}, ""):
        counts[Lane(team, pool, task)][JobState(state)] = count
    ((last_seq, last_entry),) = select("last_numbers", {}, "")
    resources = map(resource_of_row, select("resources", {}, ""))
    return Snapshot(
        counts=dict(counts),
        in_progress=list(map(job_of_row, select("in_progress", {}, ""))),
        resources=sorted(resources, key=lambda resource: (resource.spec.pool, resource.index)),
        next_seq=last_seq + 1,
        next_entry=last_entry + 1,
        next_index=dict(select("next_indexes", {}, "")),
    )


def pending(select: Select, lane: Lane, after: Place | None, limit: int) -> list[Job]:
    """Return pending jobs of a lane behind a place."""
    of_lane = {name: storable_text(value) for name, value in lane._asdict().items()}
    parameters = {**of_lane, **(after or _FIRST)._asdict(), "limit": limit}
    return list(map(job_of_row, select("pending", parameters, "")))


def reply(select: Select, key: str) -> Reply | None:
    """Return the remembered reply of a key."""
    rows = select("reply", {"key": storable_text(key)}, "")
    return Reply(*rows[0]) if rows else None


class SqlReader:
    """A `Reader` over one connection of its own.

    A listing of several teams or kinds asks for each of them alone, which an index answers from its place on, and
    merges what comes: the database would look at every row of the others in between.
    """

    def __init__(self, select: Select, close: Callable[[], None]) -> None:
        self._select = select
        self._close = close

    def jobs(self, query: JobQuery) -> list[Job]:
        """Return the jobs of a query, by `seq`."""
        given = {"task": query.task, "pool": query.pool}
        filters = {name: value for name, value in given.items() if value is not None}
        # In the statement itself, where SQLite sees that the index of this very state will do.
        of_state = f" AND state = '{query.state.value}'" if query.state else ""
        rows = self._merged(
            "listed_jobs", "team", query.teams, filters, query.after, query.limit, by=itemgetter(9), condition=of_state
        )
        return list(map(job_of_row, rows))

    def finished(self, after: int, limit: int, teams: frozenset[str] | None = None) -> list[FinishedJob]:
        """Return jobs completed after an entry of the history, by that entry; a job completed twice shows once."""
        rows = self._merged("finished", "team", teams, {}, after, limit)
        return [FinishedJob(row[0], job_of_row(row[1:])) for row in rows]

    def history(
        self, after: int, limit: int, *, job_id: str | None = None, what: Iterable[Happening] = ()
    ) -> list[HistoryEntry]:
        """Return entries greater than `after`, in order; `what` empty means every kind."""
        kinds = frozenset(kind.value for kind in what) or None
        filters = {} if job_id is None else {"job_id": job_id}
        return list(map(history_of_row, self._merged("history", "what", kinds, filters, after, limit)))

    def close(self) -> None:
        """Give its connection up; legal twice."""
        self._close()

    def _merged(
        self,
        statement: str,
        column: str,
        values: frozenset[str] | None,
        filters: Mapping[str, str],
        after: int,
        limit: int,
        by: Callable[[Row], Any] = itemgetter(0),
        condition: str = "",
    ) -> list[Row]:
        """Return rows in order of `by` whose `column` has one of the values (None: any), the others as given."""
        if values is None:
            return self._rows(statement, filters, after, limit, condition)
        each = [self._rows(statement, {**filters, column: value}, after, limit, condition) for value in sorted(values)]
        return list(islice(merge(*each, key=by), limit))

    def _rows(self, statement: str, filters: Mapping[str, str], after: int, limit: int, condition: str) -> list[Row]:
        condition += "".join(f" AND {name} = :{name}" for name in filters)
        parameters = {name: storable_text(value) for name, value in filters.items()}
        return self._select(statement, {**parameters, "after": after, "limit": limit}, condition)
