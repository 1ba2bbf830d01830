"""The curve of a training: the score of each checkpoint by step, and how it compares with the best before it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headgate.reports.compared import DEFINITIONS as TERMS
from headgate.reports.compared import DRAWN, Compared, count, interval, percent, score
from headgate.reports.leaderboard import Leaderboard, Missing, build_leaderboard
from headgate.reports.statistics import Comparison, TaskScores, comparison, distinct
from headgate.reports.svg import COLOURS, blank_figure, drawing, legend_above, quiet_grid
from headgate.statistics import MIN_COMMON_TASKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headgate.statistics import MeanEstimate, PairedDifference

_DIGITS: Final = 6
_NUMBER: Final = re.compile(r"[0-9]+")
_MOST_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class CheckpointScore:
    """One checkpoint on the curve.

    Attributes:
        mean: mean over environments, with its interval; None if no sample has a score.
        missing: its samples, and those without a score.
        tasks: number of distinct tasks that it has samples of; 0 if no sample has a score.
        versus: comparison with the best earlier checkpoint, on the same tasks; None for the first one.
    """

    step: int
    model: str
    mean: MeanEstimate | None
    missing: Missing | None
    tasks: int
    versus: Comparison | None

    @property
    def difference(self) -> PairedDifference | None:
        """Difference from the best earlier one, with interval; None for the first, or with too few common tasks."""
        return self.versus.difference if self.versus is not None else None

    @property
    def is_regression(self) -> bool:
        """Whether it is worse than the best earlier one: the interval of the paired difference lies below zero."""
        return self.difference is not None and self.difference.high < 0

    @property
    def is_progress(self) -> bool:
        """Whether it is better than the best earlier one: the interval lies above zero."""
        return self.difference is not None and self.difference.low > 0

    @property
    def verdict(self) -> str:
        """The result of the comparison, in words."""
        if self.mean is None:
            return "no score"
        if self.versus is None:
            return "first"
        if self.versus.difference is None:
            return f"too few tasks ({max(self.versus.left_out.values())} of {MIN_COMMON_TASKS})"
        return "worse" if self.is_regression else "better" if self.is_progress else "not told apart"


@dataclass(frozen=True, slots=True)
class CheckpointCurve:
    """The checkpoints of one training, by step.

    Attributes:
        points: each checkpoint that has samples.
        board: the source of their means and intervals; a missing score counts as 0 in every comparison.
    """

    points: tuple[CheckpointScore, ...]
    board: Leaderboard

    @property
    def best(self) -> CheckpointScore | None:
        """The checkpoint with the highest mean, a missing score counted as 0; None while none has a score."""
        order = [one.model for one in self.board.standings]
        return next((point for model in order for point in self.points if point.model == model), None)

    def point(self, model: str) -> CheckpointScore | None:
        """Return the checkpoint of a key."""
        return next((point for point in self.points if point.model == model), None)


def step_of(name: str) -> int | None:
    """Return the last number in a checkpoint's name; None if it has none."""
    numbers = _NUMBER.findall(name.removesuffix(".gguf"))
    return int(numbers[-1][-_MOST_DIGITS:]) if numbers else None


def build_curve(samples: pl.DataFrame, steps: Mapping[str, int]) -> CheckpointCurve:
    """Return the curve of the checkpoints that have samples.

    Each is compared with the best earlier one by a 95 % interval, which is not corrected for multiple comparisons: one
    in forty equal checkpoints looks worse by chance.

    Args:
        samples: with the columns `LEADERBOARD_COLUMNS`.
        steps: key of a model -> its step.

    Raises:
        InvalidInputError: if a column is missing.
    """
    ours = samples.filter(pl.col("model").is_in(list(steps)))
    board = build_leaderboard(ours, most_compared=0, indifference=0)  # each is compared with one other, below
    means = {one.model: one for one in board.standings}
    counted = distinct(ours).filter(
        pl.col("model").is_in(list(means)), pl.col("environment").is_in({cell.environment for cell in board.cells})
    )
    scores = TaskScores.of(counted.with_columns(pl.col("score").cast(pl.Float64).fill_nan(None).fill_null(0.0)))
    place = {model: number for number, model in enumerate(means)}
    points, best = [], ""
    for model in sorted({*means, *board.unscored}, key=lambda model: (steps[model], model)):
        one = means.get(model)
        versus = comparison(scores, model, best) if best and one is not None else None
        mean, missing, tasks = (one.mean, one.missing, one.tasks) if one is not None else (None, None, 0)
        points.append(CheckpointScore(steps[model], model, mean, missing, tasks, versus))
        if one is not None and (not best or place[model] < place[best]):
            best = model
    return CheckpointCurve(tuple(points), board)


def curve_rows(curve: CheckpointCurve) -> list[dict[str, str]]:
    """Return one row per checkpoint, the newest first."""
    most = max((one.tasks for one in curve.points), default=0)
    return [_row(curve, point, most) for point in reversed(curve.points)]


def _row(curve: CheckpointCurve, point: CheckpointScore, most: int) -> dict[str, str]:
    mean, missing, made = point.mean, point.missing, point.difference
    return {
        "step": count(point.step),
        "checkpoint": point.model,
        "mean": score(mean.mean if mean else None),
        "95 % interval": interval(mean.low, mean.high) if mean else "–",
        "tasks": count(most) if point.tasks == most else f"{count(point.tasks)} of {count(most)}",
        "missing": percent(missing.share if missing else 1.0),
        "difference": f"{made.difference:+.3f}" if made else "–",
        "its interval": f"{made.low:+.3f} – {made.high:+.3f}" if made else "–",
        "from": point.versus.against.partition("@")[2] or point.versus.against if point.versus is not None else "",
        "verdict": point.verdict + (", the best" if curve.best is point else ""),
    }


def curve_document(curve: CheckpointCurve) -> dict[str, Any]:
    """Return the curve as JSON values."""
    return {
        "best": curve.best.model if curve.best is not None else None,
        "checkpoints": [point_document(point) for point in curve.points],
    }


def point_document(point: CheckpointScore) -> dict[str, Any]:
    """Return one checkpoint as JSON values."""
    made = point.difference
    return {
        "step": point.step,
        "model": point.model,
        "mean": point.mean and round(point.mean.mean, _DIGITS),
        "low": point.mean and round(point.mean.low, _DIGITS),
        "high": point.mean and round(point.mean.high, _DIGITS),
        "samples": point.missing.samples if point.missing else 0,
        "scored": point.missing.scored if point.missing else 0,
        "tasks": point.tasks,
        "against": point.versus.against if point.versus is not None else None,
        "difference": made and round(made.difference, _DIGITS),
        "difference_low": made and round(made.low, _DIGITS),
        "difference_high": made and round(made.high, _DIGITS),
        "verdict": point.verdict,
    }


_CAPTION: Final = "Mean score of each checkpoint by step; lines are 95 % intervals"
_DEFINITIONS: Final = {
    "checkpoint": "The model as a step of the training left it. Every checkpoint answers the same tasks.",
    "mean": TERMS["mean"],
    "tasks": "How many tasks it has samples of. With fewer than others, its mean is over these alone.",
    "missing": TERMS["missing"],
    "difference": "Mean over the tasks that both did of the checkpoint's score less that of the best checkpoint before "
    "it, a missing score counted as 0; with its own 95 % interval, not corrected for how many checkpoints there are.",
    "verdict": "Better or worse: the whole interval of the difference lies above or below zero.",
}


def curve_view(curve: CheckpointCurve, *, title: str) -> Compared:
    """Return the curve as a page and as Markdown."""
    return Compared(
        title=title,
        period="",
        tables=[("Checkpoints", curve_rows(curve))],
        nothing="No checkpoint has a score.",
        names=frozenset({"checkpoint", "from", "verdict"}),
        definitions=_DEFINITIONS,
        problems=[f"{p.model}: {p.versus.problem}" for p in curve.points if p.versus is not None and p.versus.problem],
        problems_title="What could not be told",
        figure_name="checkpoints",
        caption=_CAPTION,
        draw=partial(curve_figure, curve),
    )


def curve_figure(curve: CheckpointCurve) -> Figure | None:
    """Return the score by step with its intervals, the last `DRAWN` times ten checkpoints; None without a score."""
    shown = [point for point in curve.points if point.mean is not None][-10 * DRAWN :]
    if not shown:
        return None
    with drawing():
        figure = blank_figure(3.2)
        axes = figure.subplots()
        axes.plot(*_course(shown), color=COLOURS[0], linewidth=1, alpha=0.6)
        kinds = {
            "worse than the best before": ([p for p in shown if p.is_regression], COLOURS[5]),
            "better than the best before": ([p for p in shown if p.is_progress], COLOURS[2]),
            "not told apart": ([p for p in shown if not (p.is_regression or p.is_progress)], COLOURS[7]),
        }
        for label, (points, colour) in kinds.items():
            if points:
                steps, means = _course(points)
                axes.vlines(steps, *_limits(points), color=colour, linewidth=2, alpha=0.6)
                axes.plot(steps, means, "o", color=colour, markersize=5, label=label)
        axes.set_xlabel("step")
        axes.set_ylabel("mean score")
        axes.set_ylim(-0.02, 1.02)
        legend_above(axes)
        quiet_grid(axes, "y")
    return figure


def _course(points: Sequence[CheckpointScore]) -> tuple[list[int], list[float]]:
    return [p.step for p in points], [p.mean.mean for p in points if p.mean is not None]


def _limits(points: Sequence[CheckpointScore]) -> tuple[list[float], list[float]]:
    made = [p.mean for p in points if p.mean is not None]
    return [mean.low for mean in made], [mean.high for mean in made]
