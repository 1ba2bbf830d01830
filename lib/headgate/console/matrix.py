"""Models × environments: the progress, lag and score of each pair of a campaign, and what is paused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from fastapi import FastAPI
from starlette.datastructures import QueryParams

from headgate.console.asking import RunSource
from headgate.console.findings import LATE_S
from headgate.console.listing import page_of
from headgate.console.pages import Console
from headgate.console.sources import Source, Sources
from headgate.storage import interval_of

ROWS: Final = 30
COLUMNS: Final = 8
"""Rows and columns of one page: 240 cells, whatever the size of the system."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One model in one environment.

    Attributes:
        pair: the pair as the campaign reports it.
        run: address of a run that samples it.
        paused: why an operator has paused it; empty where nobody has.
    """

    pair: Mapping[str, Any]
    run: str
    paused: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean score, as in `headgate summary`; the widest if no squares are reported."""
        mean, total = self.pair["mean_score"], self.pair["score_sum"]
        if mean is None or not 0 <= mean <= 1:
            return None
        squares = self.pair.get("score_square_sum", total)
        made = interval_of(self.pair["scored"], total, squares, is_binary=math.isclose(squares, total, abs_tol=1e-9))
        return made.low, made.high

    @property
    def is_late(self) -> bool:
        """Whether its oldest due task waits for longer than it should."""
        return bool(self.pair["lag_s"] > LATE_S)


@dataclass(slots=True)
class Row:
    """One model with its pairs.

    Attributes:
        model: the model as the campaign reports it.
        run: address of a run that samples it.
        cells: by environment.
    """

    model: Mapping[str, Any]
    run: str
    cells: dict[str, Cell] = field(default_factory=dict)

    def sum(self, name: str) -> float:
        """Return the sum of a figure over all environments."""
        return float(sum(cell.pair[name] for cell in self.cells.values()))

    @property
    def lag_s(self) -> float:
        """The largest lag."""
        return max((cell.pair["lag_s"] for cell in self.cells.values()), default=0.0)

    @property
    def mean(self) -> float | None:
        """Mean of the means of its environments, so that each counts the same; None before the first score."""
        means = [cell.pair["mean_score"] for cell in self.cells.values() if cell.pair["mean_score"] is not None]
        return sum(means) / len(means) if means else None


STATES: Final[Mapping[str, tuple[str, Callable[[Row], bool]]]] = {
    "": ("all models", lambda _: True),
    "late": ("late", lambda row: row.lag_s > LATE_S),
    "paused": ("paused", lambda row: row.model["is_paused"] or any(cell.paused for cell in row.cells.values())),
    "errors": ("with errors", lambda row: row.model["errors_1h"] > 0 or row.sum("errors") > 0),
    "unfinished": ("not done", lambda row: row.sum("done") < row.sum("due")),
}
"""Value in the address -> label on the page, and the rows that it shows."""

SORTS: Final[Mapping[str, tuple[str, Callable[[Row], Any]]]] = {
    "": ("roster's order", lambda _: 0),
    "model": ("name", lambda row: row.model["model"]),
    "lag": ("lag", lambda row: -row.lag_s),
    "errors": ("errors", lambda row: -row.sum("errors")),
    "mean": ("mean score", lambda row: -(-1.0 if row.mean is None else row.mean)),
    "done": ("samples", lambda row: -row.sum("done")),
}
"""Value in the address -> label on the page, and the sort key."""


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""
    console.add_live(app, "/matrix", partial(_values, Tables(), console.sources))


def _values(tables: Tables, sources: Sources, query: QueryParams) -> dict[str, Any]:
    run = sources.run(query.get("run", ""))
    runs = _of_campaign(run, sources.of("run"))
    rows = tables.rows(runs)
    run_by_environment = {name: cell.run for row in rows for name, cell in row.cells.items()}
    environments = sorted(run_by_environment)
    wanted = query.get("environment", "").lower()
    columns = page_of([name for name in environments if wanted in name.lower()], query, COLUMNS, name="columns")
    name, chosen = query.get("model", "").lower(), STATES.get(query.get("state", ""), STATES[""])[1]
    shown = [row for row in rows if name in row.model["model"].lower() and chosen(row)]
    shown.sort(key=SORTS.get(query.get("sort", ""), SORTS[""])[1])
    return {
        "run": runs[0] if runs else None,
        "run_by_environment": run_by_environment,
        "in_force": _in_force(runs[0]) if runs else {},
        "lost": {one.address for one in runs[1:] if one.is_gone},
        "rows": page_of(shown, query, ROWS),
        "columns": columns,
        "environments": len(environments),
        "models": len(rows),
        "states": STATES,
        "sorts": SORTS,
    }


def _in_force(run: RunSource) -> Mapping[tuple[str | None, str | None], Sequence[Mapping[str, Any]]]:
    """Return what operators have paused and set, by model and environment: the same for all runs of a campaign."""
    found: dict[tuple[str | None, str | None], list[Mapping[str, Any]]] = {}
    for one in (run.said.get("controls") or {}).get("controls", ()):
        found.setdefault((one["model"], one["environment"]), []).append(one)
    return found


def _of_campaign(run: Source | None, all_runs: Sequence[Source]) -> Sequence[RunSource]:
    """Return the live runs of a run's campaign, then dead ones that sampled what no live one does; or only it."""
    if not isinstance(run, RunSource):
        return []
    beside = [one for one in all_runs if isinstance(one, RunSource) and one.campaign == run.campaign]
    live = [one for one in beside if one.is_up]
    lost = [one for one in beside if one.is_gone and not one.is_over and not one.samples <= _sampled(live)]
    return live + lost or [run]


def _sampled(runs: Iterable[RunSource]) -> set[str]:
    return {name for run in runs if not run.is_gone for name in run.samples}


class Tables:
    """The rows of every campaign, made once for each revision of its runs' answers. Owned by the screen."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Source, tuple[object, list[Row]]] = WeakKeyDictionary()

    def rows(self, runs: Sequence[RunSource]) -> list[Row]:
        """Return the models of a campaign with their pairs, of all its runs."""
        if not runs:
            return []
        made_of = [(id(run), run.seen_at, run.is_gone) for run in runs]
        before, rows = self._made.get(runs[0], (None, []))
        if before != made_of:
            rows = _rows(runs)
            self._made[runs[0]] = made_of, rows
        return rows


def _rows(runs: Sequence[RunSource]) -> list[Row]:
    rows: dict[str, Row] = {}
    sampled = _sampled(runs)
    for run in runs:
        said = run.said
        for model in said.get("models", ()):
            known = rows.setdefault(model["model"], Row({}, run.address))
            if not run.is_gone or not known.model:
                known.model = _together(known.model, model, adds=("errors_1h", "in_flight", "queued"))
        held = _in_force(run)
        for pair in said.get("pairs", ()):
            row = rows.get(pair["model"])
            if row is not None and (not run.is_gone or pair["environment"] not in sampled):
                model, environment = pair["model"], pair["environment"]
                subjects = ((model, environment), (None, environment), (None, None)) if held else ()
                pauses = (one for subject in subjects for one in held.get(subject, ()) if one["what"] == "paused")
                paused = next((one["reason"] or f"by {one['by']}" for one in pauses), "")
                known_pair = row.cells[environment].pair if environment in row.cells else {}
                both = _together(known_pair, pair, adds=("due", "done", "scored", "errors", "score_sum"))
                row.cells[environment] = Cell(both, run.address, paused)
    return list(rows.values())


def _together(known: Mapping[str, Any], said: Mapping[str, Any], *, adds: Sequence[str]) -> Mapping[str, Any]:
    """Return the merged reports of two runs on one model, or on one pair."""
    if not known:
        return said
    both = {**said, **(known if known.get("is_paused") else {}), **{name: known[name] + said[name] for name in adds}}
    if "lag_s" in said:
        both["lag_s"] = max(known["lag_s"], said["lag_s"])
        both["mean_score"] = both["score_sum"] / both["scored"] if both["scored"] else None
        both["score_square_sum"] = sum(one.get("score_square_sum", one["score_sum"]) for one in (known, said))
    return both
