"""The read-only page: jobs by state, teams by tasks, policy servers and who waits for them, dead jobs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import accumulate
from typing import Final, NamedTuple

import jinja2

from headgate.jobqueue.job import JobState
from headgate.jobqueue.wire import JobOut
from headgate.jobqueue.wire_servers import LaneOut, ResourceOut, StatisticsOut

REFRESH_S: Final = 5
"""How often an open page asks again."""

_SHADES: Final = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """Jobs of one team at one task; all pools together."""

    total: int = 0
    done: int = 0
    dead: int = 0
    in_progress: int = 0
    is_served: bool = True

    def plus(self, lane: LaneOut) -> Cell:
        """Return this cell with a lane's jobs added."""
        return Cell(
            self.total + lane.pending + lane.in_progress + lane.done + lane.dead,
            self.done + lane.done,
            self.dead + lane.dead,
            self.in_progress + lane.in_progress,
            self.is_served and (lane.is_served or not lane.pending),
        )

    @property
    def shade(self) -> int:
        """How much is done, 0 to 10; only a cell that is whole has 10."""
        return self.done * _SHADES // self.total if self.total else 0

    @property
    def words(self) -> str:
        """The cell as a sentence, for whoever hovers or listens."""
        unserved = "" if self.is_served else "; no open server serves them"
        return f"{self.done} of {self.total} done, {self.in_progress} in progress, {self.dead} dead{unserved}"


def page_html(statistics: StatisticsOut, servers: Sequence[ResourceOut], dead: Sequence[JobOut], wall: float) -> str:
    """Return the page as HTML that needs nothing else: no script, no other file."""
    return _template().render(
        statistics=statistics,
        dead=dead,
        states=_states(statistics),
        tasks=sorted({lane.task for lane in statistics.lanes}),
        heat=heat_of(statistics.lanes),
        servers=_by_pool(servers),
        pools=statistics.pools,
        style=_style(),
        refresh_s=REFRESH_S,
        at=datetime.fromtimestamp(wall, UTC),
        ago=lambda then: _ago(wall - then) if then else "",
    )


def page_policy() -> str:
    """Return the content security policy of the page: its own style, nothing else."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def heat_of(lanes: Sequence[LaneOut]) -> dict[str, dict[str, Cell]]:
    """Return team -> task -> cell, both by name."""
    heat: dict[str, dict[str, Cell]] = {}
    for lane in sorted(lanes, key=lambda lane: (lane.team, lane.task)):
        cells = heat.setdefault(lane.team, {})
        cells[lane.task] = cells.get(lane.task, Cell()).plus(lane)
    return heat


class _Part(NamedTuple):
    """One state's part of the bar of all jobs, in per cent of its length."""

    state: JobState
    jobs: int
    start: float
    width: float


def _states(statistics: StatisticsOut) -> list[_Part]:
    order = (JobState.DONE, JobState.IN_PROGRESS, JobState.PENDING, JobState.DEAD)
    jobs = [statistics.jobs.get(state, 0) for state in order]
    widths = [100 * number / max(sum(jobs), 1) for number in jobs]
    return list(map(_Part, order, jobs, accumulate(widths, initial=0.0), widths))


def _by_pool(servers: Sequence[ResourceOut]) -> dict[str, list[ResourceOut]]:
    found: dict[str, list[ResourceOut]] = {}
    for server in sorted(servers, key=lambda server: (server.pool, server.index)):
        for pool in server.pools:
            found.setdefault(pool, []).append(server)
    return found


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


@cache
def _style() -> str:
    return _text("page.css")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_text("page.html"))


def _text(name: str) -> str:
    return resources.files("headgate.jobqueue.server").joinpath("templates").joinpath(name).read_text(encoding="utf-8")
