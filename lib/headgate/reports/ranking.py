"""The results of a ranking, in sentences and rows; and verdicts of stored samples on neighbours in an order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import polars as pl

from headgate.core.events import ModelsRanked
from headgate.sampling import NEXT_SAMPLES, RankingReport
from headgate.statistics import MIN_COMMON_TASKS, PairwiseRanking

INDIFFERENCE: Final = 0.02
"""Default indifference of verdicts on stored samples."""

_NEARLY_SURE: Final = 0.999

_CONFIDENCE: Final = "with 95 % confidence in all of them together"
_MOST_LINES: Final = 45
_MOST_TASKS: Final = 4_000
"""Maximum tasks per environment, the first ones, for verdicts on stored samples: seconds for a thousand models."""

_WORDS: Final = {"better": "is better than", "not worse": "comes before", "alike": "is as good as"}
_MIRRORED: Final = {"worse": "better", "not better": "not worse"}


def neighbours_of(scored: pl.DataFrame, order: Sequence[str], indifference: float) -> RankingReport:
    """Return the verdicts of stored samples on each model and the next one in an order.

    This is the test of `headgate rank` on an unbounded table: verdicts are about tasks like these. A row is a task of
    each environment in which both models have `MIN_COMMON_TASKS` tasks. Tasks are in the order in which any model first
    ended them, so future samples are appended, and verdicts are valid at any time. They are corrected for every pair of
    models, since the order depends on the scores.

    Args:
        scored: `model`, `environment`, `index`, `score` and `finished_at`; a task counts with the mean of its samples.
        order: the models in order; others are ignored.
        indifference: see `INDIFFERENCE`; in (0, 1).

    Raises:
        InvalidInputError: if `indifference` is not between 0 and 1.
    """
    count = len(order) - 1
    if count < 1:
        return RankingReport()
    rows = _rows(scored, order)
    pair, row = rows["pair"].to_numpy(), rows["row"].to_numpy()
    length = 1 + int(row.max(initial=0)) + NEXT_SAMPLES // 2
    sides = np.full((2 * count, length), np.nan)  # two rows per pair of models
    sides[2 * pair, row], sides[2 * pair + 1, row] = rows["first"].to_numpy(), rows["second"].to_numpy()
    ranking = PairwiseRanking(
        sides,
        indifference,
        pairs=[(2 * place, 2 * place + 1) for place in range(count)],
        family=count * (count + 1) // 2,
        is_endless=True,
    )
    found = ranking.decisions()
    is_open = [one.verdict == "open" and one.rows > 0 for one in found]
    models = sum(is_open[max(0, place - 1) : place + 1].count(True) > 0 for place in range(count + 1))
    foreseen = None if any(one.verdict == "open" for one in found) else 0.0
    if models:  # a model with two open pairs is sampled once for both
        environments = float(rows["environments"].to_numpy().mean())
        samples = round(NEXT_SAMPLES / environments * 2 * sum(is_open) / models)
        foreseen = ranking.forecast(samples, np.random.default_rng(0))
    return RankingReport(
        tuple(
            ModelsRanked(
                order[n], order[n + 1], one.verdict, one.certainty, one.rows, one.difference, one.low, one.high
            )
            for n, one in enumerate(found)
        ),
        foreseen,
        indifference,
    )


def _rows(scored: pl.DataFrame, order: Sequence[str]) -> pl.DataFrame:
    """Return by pair and row the two models' mean scores over environments, and the number of environments."""
    places = pl.DataFrame({"model": order, "pair": range(len(order))}, schema={"model": pl.String, "pair": pl.Int64})
    task, within = ["environment", "index"], ("pair", "environment")
    when = scored.group_by(task).agg(pl.col("finished_at").min()).sort("finished_at", *task).with_row_index("turn")
    tasks = (
        scored.group_by("model", *task)
        .agg(pl.col("score").mean().alias("first"))
        .join(places, on="model")
        .join(when.with_columns(of=pl.col("environment").rank("dense")), on=task)
        .select("pair", "turn", "first", environment="of")
    )
    return (
        tasks.join(tasks.select(pl.col("pair") - 1, "turn", second="first"), on=["pair", "turn"])
        .sort(*within, "turn")
        .with_columns(row=pl.int_range(pl.len()).over(within), count=pl.len().over(within))
        .filter(pl.col("count") >= MIN_COMMON_TASKS)
        .filter(pl.col("row") < pl.col("count").min().over("pair").clip(upper_bound=_MOST_TASKS))
        .sort("pair", "row", "environment")  # the order of a sum is in its last digit
        .group_by("pair", "row", maintain_order=True)
        .agg(pl.col("first", "second").mean(), environments=pl.len())
    )


def ranking_lines(report: RankingReport) -> list[str]:
    """Return the number of ranked pairs, a line for each of up to 45, and what more samples would decide."""
    pairs = len(report.pairs)
    within = f"to within {report.indifference:g}"
    lines = [f"{pairs - report.open} of {pairs} pairs of models are ranked {within}, {_CONFIDENCE}"]
    decided = [pair for pair in report.pairs if pair.verdict != "open"]
    lines += _shown(decided)
    if report.open:
        again = "; run the same command again to go on" if report.next_decides is None or report.unscored else ""
        lines.append(f"{report.open} not ranked yet; {_foreseen(report)}{again}")
        lines += _shown([pair for pair in report.pairs if pair.verdict == "open"])
    if report.unscored:
        lines.append(f"no score, and so no rank: {', '.join(report.unscored[:_MOST_LINES])}")
    return lines


def neighbours_said(report: RankingReport) -> str:
    """Return the number of ranked neighbours, the certainty, and what more samples would decide; empty without any."""
    if not report.pairs:
        return ""
    pairs = len(report.pairs)
    left = f"; {_foreseen(report)}{' more' * (report.next_decides is not None)}" if report.open else ""
    return (
        f"{pairs - report.open} of {pairs} neighbours in the order are ranked to within {report.indifference:g} on "
        f"tasks like these, {_CONFIDENCE}, whenever you look{left}."
    )


def neighbour_rows(report: RankingReport) -> list[dict[str, str]]:
    """Return one row per pair of neighbours: which comes first, the difference, certainty and number of tasks."""
    return [
        {
            "model": pair.first,
            "verdict": _WORDS.get(pair.verdict, "is not told from"),
            "next": pair.second,
            "difference (95 %)": f"{pair.difference:+.3f} ({pair.low:+.3f} to {pair.high:+.3f})" if pair.tasks else "–",
            "certainty": _percent(pair.certainty) if pair.certainty else "–",
            "tasks": f"{pair.tasks:,}",
        }
        for pair in map(_forward, report.pairs)
    ]


def ranking_document(report: RankingReport) -> dict[str, Any]:
    """Return a report as JSON values."""
    return asdict(report) | {"open": report.open, "next_samples": NEXT_SAMPLES}


def _percent(certainty: float) -> str:
    """Return a probability, without rounding it up to 100 %."""
    return f"{certainty:.1%}" if certainty == 1 or certainty < _NEARLY_SURE else f"> {_NEARLY_SURE:.1%}"


def _foreseen(report: RankingReport) -> str:
    if report.next_decides is None:
        return "what more samples would rank cannot be foreseen"
    return f"the next {NEXT_SAMPLES} samples would rank about {report.next_decides:.0f}"


def _shown(pairs: list[ModelsRanked]) -> Iterator[str]:
    yield from map(_line, pairs[:_MOST_LINES])
    if len(pairs) > _MOST_LINES:
        yield f"and {len(pairs) - _MOST_LINES} more: --json has them all"


def _forward(pair: ModelsRanked) -> ModelsRanked:
    """Return a pair with the better model first."""
    if pair.verdict in _MIRRORED or (pair.verdict not in _WORDS and pair.difference < 0):
        verdict = _MIRRORED.get(pair.verdict, pair.verdict)
        turned = pair.second, pair.first, verdict, pair.certainty, pair.tasks, -pair.difference, -pair.high, -pair.low
        return ModelsRanked(*turned)
    return pair


def _line(pair: ModelsRanked) -> str:
    pair = _forward(pair)
    words = _WORDS.get(pair.verdict, "and")
    sure = f", {_percent(pair.certainty)} sure" if pair.certainty else ""
    limits = f"[{pair.low:+.3f}, {pair.high:+.3f}]"
    return f"{pair.first} {words} {pair.second}: {pair.difference:+.3f} {limits} on {pair.tasks} tasks{sure}"
