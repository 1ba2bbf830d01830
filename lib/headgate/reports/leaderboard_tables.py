"""A leaderboard as rows of text for people, and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headgate.core import utc_text
from headgate.core.errors import some_of
from headgate.reports.compared import DRAWN, RANKING, Compared, count, interval, percent, score
from headgate.reports.costs import money
from headgate.reports.leaderboard import Cell, Leaderboard, MissingRule, NoAnswers, Standing
from headgate.reports.ranking import neighbour_rows, neighbours_said, ranking_document
from headgate.reports.statistics import Comparison
from headgate.reports.svg import COLOURS, INK, blank_figure, draw_intervals, drawing, name_rows, short_name
from headgate.statistics import MIN_COMMON_TASKS, MeanEstimate, TooFewSamples
from headgate.telemetry import printable, safe_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FEWER: Final = " *"
"""Marks a mean over fewer than all environments, and a difference over fewer than all tasks of both models."""

COULD_MOVE: Final = " †"
"""Marks a rank that missing scores could change."""

PARTIAL: Final = " ‡"
"""Marks a cost that does not cover all samples."""

_NAMED: Final = 5

_COUNTED_AS: Final[Mapping[MissingRule, str]] = {
    "bound": "Order, ranks, groups and differences count a missing score as 0: failing gains nothing. Means leave it "
    "out; intervals reach from all of them 0 to all of them 1.",
    "zero": "A missing score counts as 0 everywhere.",
    "exclude": "Missing scores are left out everywhere, so a model that fails where it is unsure ranks higher.",
}

_listed: Final = partial(some_of, most=_NAMED)


def leaderboard_notes(board: Leaderboard, *, of_differences: bool = True) -> tuple[str, ...]:
    """Return a sentence for each mark and gap in the leaderboard's tables; `of_differences` if they show these."""
    return (
        *_means(board),
        *(_differences(board) if of_differences else ()),
        *_missing(board),
        *_ranks(board),
        *filter(None, [neighbours_said(board.neighbours)]),
        *_costs(board),
        *board.served,
    )


def covered_time(board: Leaderboard) -> str:
    """Return in UTC when the first and the last sample of the leaderboard ended; empty without samples."""
    first, last = board.ended
    return "" if first is None or last is None else f"samples that ended {utc_text(first)} to {utc_text(last)}"


def _means(board: Leaderboard) -> Iterator[str]:
    of = len(board.environments)
    yield from _same(
        (one.model, f"mean over {one.environments} of {of} environments; no score in {_listed(left_out)}.")
        for one in board.standings
        if (left_out := board.left_out(one.model))
    )
    if board.without_scores:
        yield f"In no mean, since no model has a score there: {_listed(board.without_scores)}."


def _differences(board: Leaderboard) -> Iterator[str]:
    told = []
    for one in board.standings:
        if one.versus is not None and board.is_partial(one):
            few = _listed([f"{environment} ({count(common)})" for environment, common in one.versus.left_out.items()])
            less = f"; left out, with fewer than {MIN_COMMON_TASKS} of them: {few}" if few else ""
            told.append((one.model, f"difference from {board.against} over common tasks only{less}."))
    yield from _same(told)


def _missing(board: Leaderboard) -> Iterator[str]:
    if any(one.missing.share for one in board.standings):
        yield _COUNTED_AS[board.missing]
    marked = [one for one in board.standings if one.could_move]
    if marked:
        told = [
            f"{one.model} {score(one.missing.mean_if_zero)} or {score(one.missing.mean_if_one)}"
            for one in sorted(marked, key=lambda one: -one.missing.share)
            if one.missing.share
        ]
        yield (
            "† Missing scores could change this rank. With every missing score 0, or every one 1, the mean would be: "
            f"{_listed(told, separator='; ')}."
        )
    if board.unscored:
        told = [f"{model} ({count(samples)})" for model, samples in board.unscored.items()]
        yield f"Not ranked, since none of their samples has a score: {_listed(told)}."


def _ranks(board: Leaderboard) -> Iterator[str]:
    if len(board.standings) > board.most_compared:
        here = len(board.standings)
        yield f"No ranks: at most {board.most_compared} models are compared with each other (here {here})."
        return
    ranks = [one.rank for one in board.standings]
    if any(ranks.count(rank) > 1 for rank in ranks if rank is not None):
        yield "Models that share a rank are tied: as many others are better than each by more than chance explains."
    if None in ranks:
        yield f"– has no rank: no other model shares {MIN_COMMON_TASKS} tasks of an environment with it."


def _costs(board: Leaderboard) -> Iterator[str]:
    told = [
        f"{one.model} {count(one.cost.samples)} of {count(one.cost.of)}"
        for one in board.standings
        if one.cost is not None and one.cost.is_partial
    ]
    if told:
        yield f"‡ Cost only of samples whose cost is known: {_listed(told)}."


def _same(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each sentence once, after the names of all models to which it applies."""
    for sentence, said in groupby(sorted(told, key=lambda one: one[1]), key=lambda one: one[1]):
        yield f"* {_listed([name for name, _ in said])}: {sentence}"


def standing_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model, best first: rank, mean with interval, missing scores, groups, difference, votes.

    Models without any score come last and have no rank. `leaderboard_notes` explains the marks.
    """
    return [_standing(board, one) for one in board.standings] + [_unscored(board, model) for model in board.unscored]


def versus_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model except the reference: the paired difference and its basis."""
    return [_versus(one.versus) for one in board.standings if one.versus is not None]


def cell_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model and environment: mean with clustered interval, design effect, pass@k, maj@k."""
    return [_cell(board, one) for one in board.cells]


def leaderboard_document(board: Leaderboard) -> dict[str, Any]:
    """Return the leaderboard as JSON values, including every pair of models."""
    return {
        "environments": list(board.environments),
        "against": board.against or None,
        "is_chosen": board.is_chosen,
        "missing": board.missing,
        **dict(zip(("first_finished_at", "last_finished_at"), board.ended, strict=True)),
        "models": [
            {
                "rank": one.rank,
                "model": one.model,
                "groups": list(one.groups),
                "mean": one.mean.mean,
                "low": one.mean.low,
                "high": one.mean.high,
                "environments": one.environments,
                "samples": one.samples,
                "tasks": one.tasks,
                "missing": one.missing.samples - one.missing.scored,
                "missing_share": one.missing.share,
                "mean_if_missing_0": one.missing.mean_if_zero,
                "mean_if_missing_1": one.missing.mean_if_one,
                "rank_could_change": one.could_move,
                "left_out": list(board.left_out(one.model)),
                "versus": None if one.versus is None else _comparison_document(one.versus),
                "pass_at_k": {str(k): None if made is None else _limits(made) for k, made in one.passes.items()},
                "maj_at_k": {str(k): None if made is None else _limits(made) for k, made in one.majorities.items()},
                "cost": None if one.cost is None else one.cost.document(),
            }
            for one in board.standings
        ],
        "cells": [
            {
                "model": cell.model,
                "environment": cell.environment,
                "samples": cell.estimate.samples,
                "tasks": cell.estimate.tasks,
                **_limits(cell.estimate),
                "method": cell.estimate.method,
                "design_effect": cell.estimate.design_effect,
                "pass_at_k": {str(k): _at_document(made) for k, made in cell.passes.items()},
                "maj_at_k": {str(k): _at_document(made) for k, made in cell.majorities.items()},
            }
            for cell in board.cells
        ],
        "pairs": [_comparison_document(pair) for pair in board.pairs],
        "neighbours": ranking_document(board.neighbours),
        "unscored": dict(board.unscored),
        "without_scores": list(board.without_scores),
        "notes": list(leaderboard_notes(board)),
        "problems": list(board.problems()),
    }


def p_value(value: float | None) -> str:
    """Return a p-value with three digits; smaller values are not rounded to 0."""
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    return "–" if value is None else f"{value:+.3f}"


def _standing(board: Leaderboard, one: Standing) -> dict[str, str]:
    fewer = FEWER if one.environments < len(board.environments) else ""
    row = {
        "rank": ("–" if one.rank is None else str(one.rank)) + (COULD_MOVE if one.could_move else ""),
        "model": one.model,
        "mean": score(one.mean.mean) + fewer,
        "95 % interval": interval(one.mean.low, one.mean.high),
        "missing": percent(one.missing.share),
        **({} if board.missing != "bound" else {"worst case": score(one.missing.mean_if_zero)}),
        "group": " ".join(one.groups),
        "difference": "reference" if one.model == board.against else _difference(board, one),
        "environments": f"{one.environments} of {len(board.environments)}",
        "p": "" if one.versus is None else p_value(one.versus.adjusted_p),
        "tasks": count(one.tasks),
        "samples": count(one.samples),
    }
    if board.has_costs:
        mark = PARTIAL if one.cost is not None and one.cost.is_partial else ""
        total, per_point = (None, None) if one.cost is None else (one.cost.total, one.cost.per_point)
        row |= {"cost": money(total) + mark, "per point": money(per_point)}
    row |= {f"pass@{k}": _estimate(made) for k, made in one.passes.items()}
    return row | {f"maj@{k}": _estimate(made) for k, made in one.majorities.items()}


def _unscored(board: Leaderboard, model: str) -> dict[str, str]:
    row = {"rank": "–", "model": model, "mean": "–", "95 % interval": "–", "missing": percent(1.0)}
    row |= {"group": ""} if board.missing != "bound" else {"worst case": "–", "group": ""}
    row |= {"difference": "–", "environments": f"0 of {len(board.environments)}", "p": "", "tasks": "0", "samples": "0"}
    row |= {"cost": "–", "per point": "–"} if board.has_costs else {}
    return row | {f"{measure}@{k}": "–" for measure in ("pass", "maj") for k in board.ks}


def _difference(board: Leaderboard, one: Standing) -> str:
    if one.versus is None or one.versus.difference is None:
        return "–"
    return signed(one.versus.difference.difference) + (FEWER if board.is_partial(one) else "")


def _versus(one: Comparison) -> dict[str, str]:
    made = one.difference
    return {
        "model": one.model,
        "difference (95 % interval)": one.problem
        if made is None
        else f"{signed(made.difference)} ({signed(made.low)} to {signed(made.high)})",
        "means on these tasks": "–" if made is None else f"{score(made.first)}, {score(made.second)}",
        "common tasks": "" if made is None else count(made.tasks),
        "p (Holm)": p_value(one.adjusted_p),
        "environments": "" if made is None else str(made.environments),
        "p": p_value(None if made is None else made.p_value),
        "correlation": "–" if made is None or made.correlation is None else f"{made.correlation:.2f}",
        "gain": "–" if made is None or made.gain is None else f"{made.gain:.1f}x",
    }


def _cell(board: Leaderboard, cell: Cell) -> dict[str, str]:
    made = cell.estimate
    row = {
        "model": cell.model,
        "environment": cell.environment,
        "tasks": count(made.tasks),
        "samples": count(made.samples),
        "mean": score(made.mean),
        "95 % interval": interval(made.low, made.high),
        "method": made.method,
        "design effect": f"{made.design_effect:.2f}",
    }
    row |= {f"pass@{k}": _at(cell.passes[k]) for k in board.ks}
    return row | {f"maj@{k}": _at(cell.majorities[k]) for k in board.ks}


def _at(made: MeanEstimate | TooFewSamples | NoAnswers) -> str:
    if isinstance(made, TooFewSamples):
        return f"refused: at most {made.most} samples of a task"
    if isinstance(made, NoAnswers):
        return "none: no answers to vote on"
    return f"{score(made.mean)} ({interval(made.low, made.high)}; {count(made.tasks)} tasks)"


def _estimate(made: MeanEstimate | None) -> str:
    return "–" if made is None else f"{score(made.mean)} ({interval(made.low, made.high)})"


def _limits(made: MeanEstimate) -> dict[str, float]:
    return {"mean": made.mean, "low": made.low, "high": made.high}


def _at_document(made: MeanEstimate | TooFewSamples | NoAnswers) -> dict[str, Any]:
    if not isinstance(made, MeanEstimate):
        return {"problem": str(made)}
    return {**_limits(made), "tasks": made.tasks}


def _comparison_document(one: Comparison) -> dict[str, Any]:
    made = one.difference
    compared = {"model": one.model, "against": one.against, "left_out": dict(one.left_out)}
    if made is None:
        return compared | {"problem": one.problem}
    return compared | {
        "common_tasks": made.tasks,
        "environments": made.environments,
        "mean": made.first,
        "against_mean": made.second,
        "difference": made.difference,
        "low": made.low,
        "high": made.high,
        "p": made.p_value,
        "p_holm": one.adjusted_p,
        "is_told_apart": one.is_told_apart,
        "correlation": made.correlation,
        "gain": made.gain,
    }


_RANKING = ("rank", "model", "mean", "95 % interval", "missing", "environments")

_ANY_WIDTH = 10_000


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The ranking with its notes, and the mean score and count of scored samples of each pair; for `Console.print`.

    Models are rows and environments columns, or vice versa, or each pair is a row: the first layout that fits.

    Attributes:
        environments: environments to show, in this order, also without samples; the board's when empty.
    """

    board: Leaderboard
    environments: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text]:
        if not self.board.standings:
            yield Text("No stored sample has a score.")
            return
        costs = ("cost", "per point") if self.board.has_costs else ()
        columns = (*_RANKING, *costs, *(f"{measure}@{k}" for measure in ("pass", "maj") for k in self.board.ks))
        rows = [[row[column] for column in columns] for row in standing_rows(self.board)]
        yield _table("Ranking (each environment counts the same)", columns, rows, names=2)
        for note in leaderboard_notes(self.board, of_differences=False):
            yield Text(printable(note), style="dim")
        shapes = list(self._shapes())
        room = options.update(max_width=_ANY_WIDTH)
        fitting = (table for table in shapes if Measurement.get(console, room, table).maximum <= options.max_width)
        yield next(fitting, shapes[-1])

    def _shapes(self) -> Iterator[Table]:
        cells = {
            (cell.model, cell.environment): f"{cell.estimate.mean:.2f} ({cell.estimate.samples})"
            for cell in self.board.cells
        }
        models = [one.model for one in self.board.standings]
        shown = list(self.environments) or list(self.board.environments)
        title = "Mean score (scored samples)"
        by_model = [(m, *(cells.get((m, e), "") for e in shown)) for m in models]
        by_environment = [(e, *(cells.get((m, e), "") for m in models)) for e in shown]
        yield _table(title, ("model", *shown), by_model)
        yield _table(title, ("environment", *models), by_environment)
        yield _table(title, ("model", "environment", "mean"), [(m, e, mean) for (m, e), mean in cells.items()], names=2)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1) -> Table:
    """Return a table whose first `names` columns are left-aligned."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(Text(printable(column)), justify="left" if place < names else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


_CAPTION: Final = (
    "Mean score of each model, and its difference from {against} on the same tasks; lines are 95 % intervals"
)

DEFINITIONS: Final[Mapping[str, str]] = {
    "task": "What has the same environment and index: the same instance for every model, campaign and pass over the "
    "data. Samples of one task are not independent of each other.",
    **RANKING,
    "95 % interval": "By task: cluster-robust where tasks repeat (design effect: how many times the variance of as "
    "many independent samples), Wilson's or Student's where each task has one sample. Of one model at a time.",
    "p (Holm)": "How often chance alone would show such a difference, corrected for the number of comparisons: all "
    "models against a chosen reference, every two models against the best, which these samples chose.",
    "correlation, gain": "Of the two models' means of a task, and how many times as many tasks a comparison without "
    "pairing would need for an interval as narrow.",
    "pass@k": "Share of tasks that at least one of k samples would solve, unbiased, over the tasks with k samples or "
    "more; the interval is by task. The mean of n samples of each task is what others call avg@n.",
    "maj@k": "Share of tasks whose most frequent answer among k samples is a success: mean over groups of k samples, "
    "equally frequent answers by their share, samples without an answer not counted.",
}
"""Term -> its meaning."""


def leaderboard_figure(board: Leaderboard) -> Figure | None:
    """Return means beside the differences from the reference, a row per model; None without models."""
    shown = board.standings[:DRAWN]
    if not shown:
        return None
    with drawing():
        figure = blank_figure(0.3 * len(shown) + 1.1)
        left, right = figure.subplots(1, 2, sharey=True)
        means = [one.mean for one in shown]
        draw_intervals(left, [(row, m.low, m.mean, m.high, COLOURS[0]) for row, m in enumerate(means)])
        _draw_differences(right, shown)
        name_rows(left, [short_name(one.model) for one in shown])
        left.set_xlim(-0.02, 1.02)
        left.set_xlabel("mean score")
        right.set_xlabel(f"difference from {short_name(board.against)}")
    return figure


def leaderboard_view(board: Leaderboard, *, title: str = "Leaderboard", period: str = "") -> Compared:
    """Return the leaderboard as a page and as Markdown."""
    against = safe_text(board.against, limit_chars=80)
    return Compared(
        title=title,
        period="; ".join(filter(None, (period, covered_time(board)))),
        tables=[
            ("Models", standing_rows(board) if board.standings else []),
            ("Neighbours", neighbour_rows(board.neighbours)),
            (f"Differences from the reference, {against}", versus_rows(board)),
            ("Environments", cell_rows(board)),
        ],
        notes=leaderboard_notes(board),
        problems=board.problems(),
        problems_title="What could not be told",
        nothing="There are no scored samples to compare.",
        names=frozenset({"model", "next", "verdict", "environment", "method", "group"}),
        definitions=DEFINITIONS,
        figure_name="leaderboard",
        caption=_CAPTION.format(against=against),
        draw=partial(leaderboard_figure, board),
    )


def _draw_differences(axes: Axes, shown: Sequence[Standing]) -> None:
    axes.axvline(0, color=INK, linewidth=1, alpha=0.6)
    rows = []
    for row, one in enumerate(shown):
        if one.versus is not None and (made := one.versus.difference) is not None:
            colour = COLOURS[5] if one.versus.is_told_apart else COLOURS[7]
            rows.append((row, made.low, made.difference, made.high, colour))
    draw_intervals(axes, rows)
    axes.set_title("orange: told apart; grey: not", loc="right")
    axes.tick_params(axis="y", length=0)
