"""The arena's presentation: its figure, a self-contained HTML page, and Markdown for an artifact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headgate.core.errors import InvalidInputError
from headgate.reports.compared import DRAWN, Compared, count, percent
from headgate.reports.leaderboard import MAX_MODELS
from headgate.reports.statistics import letters_of
from headgate.reports.svg import COLOURS, INK, blank_figure, draw_intervals, drawing, name_rows, short_name
from headgate.statistics import ELO_MEAN, Agreement, Strengths, bradley_terry, krippendorff

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_TASKS: Final = 10
"""With fewer tasks, the normal approximation of an interval does not hold."""

_ORDERS: Final = 2


@dataclass(frozen=True, slots=True)
class ArenaComparison:
    """Two models' answers to one task, compared by a judge.

    Attributes:
        first: key of one model.
        second: key of the other one.
        score: score of the first: 1 won, 0.5 tie, 0 lost; a mean if each order was judged several times.
        judged: the first model's share in each judgement; it was shown first in the first, third, … of them. Empty if
            both answers are the same, and no judge was asked.
    """

    environment: str
    index: int
    first: str
    second: str
    score: float
    judged: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rated:
    """One model in the arena.

    Attributes:
        rank: 1 plus the number of connected models that are better by more than chance explains.
        rating: on the Elo scale; 1,000 is the mean of the models that comparisons connect it with.
        low: lower bound of the 95 % interval; `high` is its upper bound.
        groups: letters; models that share one cannot be distinguished.
        win_share: mean score over its comparisons, ties counting half.
        component: number of its group of connected models, from 0.
    """

    rank: int
    model: str
    rating: float
    low: float
    high: float
    groups: tuple[str, ...]
    win_share: float
    component: int
    comparisons: int
    tasks: int


@dataclass(frozen=True, slots=True)
class JudgeRecord:
    """How a judge behaved over all comparisons.

    Attributes:
        orders: number of pairs of judgements of the same two answers in both orders.
        undecided: pairs in which the order changed the preferred model.
        first_twice: pairs in which the answer shown first was preferred both times.
        second_twice: pairs in which the answer shown second was preferred both times.
        ties: pairs with a tie in both orders.
        agreement: agreement of all judgements of a comparison, from the same model's point of view.
    """

    name: str
    orders: int
    undecided: int
    first_twice: int
    second_twice: int
    ties: int
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class ArenaBoard:
    """What comparisons say about models.

    Attributes:
        models: best first, within each component; the largest component first.
        shares: (model, against) -> number of comparisons, and the mean score of the first.
        warnings: caveats for the reader, a sentence each.
    """

    models: tuple[Rated, ...]
    shares: dict[tuple[str, str], tuple[int, float]]
    environments: tuple[str, ...]
    tasks: int
    judge: JudgeRecord
    warnings: tuple[str, ...]


def build_arena(comparisons: Sequence[ArenaComparison], *, judge: str = "", warnings: Sequence[str] = ()) -> ArenaBoard:
    """Return the ratings of the models in `comparisons`, whose order does not matter.

    Raises:
        InvalidInputError: if there are more than `MAX_MODELS` models.
    """
    ordered = sorted(comparisons, key=lambda c: (c.environment, c.index, c.first, c.second))
    names = sorted({model for c in ordered for model in (c.first, c.second)})
    if len(names) > MAX_MODELS:
        raise InvalidInputError(
            f"an arena rates at most {MAX_MODELS} models (got {len(names)})",
            next_step="Name the models to compare, or choose fewer environments.",
        )
    place = {model: number for number, model in enumerate(names)}
    tasks = [f"{c.environment}\0{c.index}" for c in ordered]
    made = bradley_terry(
        [place[c.first] for c in ordered],
        [place[c.second] for c in ordered],
        [c.score for c in ordered],
        tasks,
        len(names),
    )
    shares = _shares(ordered)
    record = _record(judge, ordered)
    rated = _rated(names, made, ordered)
    told = (*warnings, *_told(rated, len(set(tasks)), record))
    environments = tuple(sorted({c.environment for c in ordered}))
    return ArenaBoard(tuple(rated), shares, environments, len(set(tasks)), record, told)


def _rated(names: Sequence[str], made: Strengths, comparisons: Sequence[ArenaComparison]) -> list[Rated]:
    won: dict[str, list[float]] = {name: [] for name in names}
    tasks: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    for c in comparisons:
        for model, score in ((c.first, c.score), (c.second, 1.0 - c.score)):
            won[model].append(score)
            tasks[model].add((c.environment, c.index))
    ranks = made.ranks()
    sizes = np.bincount(made.component, minlength=1)
    order = sorted(
        range(len(names)),
        key=lambda n: (-sizes[made.component[n]], made.component[n], -made.rating[n], names[n]),
    )
    letters = dict(zip(order, letters_of(len(order), _apart(order, made)), strict=True))
    return [
        Rated(
            rank=ranks[n],
            model=names[n],
            rating=float(made.rating[n]),
            low=float(made.low[n]),
            high=float(made.high[n]),
            groups=letters[n],
            win_share=sum(won[names[n]]) / len(won[names[n]]),
            component=int(made.component[n]),
            comparisons=len(won[names[n]]),
            tasks=len(tasks[names[n]]),
        )
        for n in order
    ]


def _apart(order: Sequence[int], made: Strengths) -> set[tuple[int, int]]:
    """Return the positions in the order of every two models that can be distinguished, or are not connected."""
    seat = {number: at for at, number in enumerate(order)}
    pairs = made.told_apart()
    pairs |= {(one, other) for one, other in combinations(order, 2) if made.component[one] != made.component[other]}
    return {(min(seat[one], seat[other]), max(seat[one], seat[other])) for one, other in pairs}


def _shares(comparisons: Sequence[ArenaComparison]) -> dict[tuple[str, str], tuple[int, float]]:
    scores: dict[tuple[str, str], list[float]] = {}
    for c in comparisons:
        scores.setdefault((c.first, c.second), []).append(c.score)
        scores.setdefault((c.second, c.first), []).append(1.0 - c.score)
    return {pair: (len(values), sum(values) / len(values)) for pair, values in scores.items()}


def _record(judge: str, comparisons: Sequence[ArenaComparison]) -> JudgeRecord:
    pairs = [pair for c in comparisons for pair in zip(c.judged[::_ORDERS], c.judged[1::_ORDERS], strict=True)]
    return JudgeRecord(
        name=judge,
        orders=len(pairs),
        undecided=sum(one != other for one, other in pairs),
        first_twice=sum(pair == (1.0, 0.0) for pair in pairs),
        second_twice=sum(pair == (0.0, 1.0) for pair in pairs),
        ties=sum(pair == (0.5, 0.5) for pair in pairs),
        agreement=krippendorff([c.judged for c in comparisons]),
    )


def _told(rated: Sequence[Rated], tasks: int, record: JudgeRecord) -> list[str]:
    """Return sentences about how far the ratings can be trusted, judging by the comparisons."""
    found = []
    components = len({one.component for one in rated})
    if components > 1:
        found.append(
            f"comparisons do not connect all models: there are {components} groups, and ratings of two groups cannot "
            "be compared"
        )
    if rated and tasks < MIN_TASKS:
        found.append(f"{tasks} task{'s' * (tasks != 1)} only: with fewer than {MIN_TASKS} no interval can be relied on")
    if record.orders and record.undecided == record.orders:
        found.append(
            f"the order of the answers decided all {record.orders:,} comparisons: the judge distinguished none, and "
            "everything counts as a tie"
        )
    elif record.undecided * 2 > record.orders:
        share = record.undecided / record.orders
        found.append(f"the order of the answers changed {share:.0%} of the verdicts: this judge tells little apart")
    return found


_CAPTION: Final = "Rating of each model on Elo's scale; lines are 95 % intervals, 1,000 is the mean"

_MATRIX: Final = 25
"""Maximum models in the matrix of win shares; a wider one is unreadable."""

ARENA_DEFINITIONS: Final[Mapping[str, str]] = {
    "comparison": "The judge compares two models' answers to the same task in both orders. The model preferred in both "
    "orders wins; everything else is a tie, which counts as half a win for each.",
    "rating": "Strength by the Bradley-Terry model on the Elo scale: 400 points are odds of 10 to 1, 1,000 is the "
    "mean of the models that comparisons connect. A weak prior keeps models that never lost finite.",
    "95 % interval": "By task, since comparisons of one task are not independent of each other; for one model at a "
    "time, and its distance from the mean.",
    "rank": "1 plus the number of models that are better with p <= 5 % (Holm over all pairs of models).",
    "group": "Models that share a letter cannot be distinguished. That does not prove them equal.",
    "win share": "Mean over the comparisons: 1 for a win, one half for a tie. It depends on the opponents of a model; "
    "the rating allows for that.",
    "order changed it": "Share of comparisons whose verdict changed when the answers changed places. Preferring the "
    "answer shown first (or second) twice is the judge's own bias, and counts as a tie.",
    "alpha": "Krippendorff's, over all judgements of a comparison: 1 when they are equal, 0 when they differ as much "
    "as those of different comparisons.",
}
"""Term -> its meaning."""


def rating_rows(board: ArenaBoard) -> list[dict[str, str]]:
    """Return one row per model, best first."""
    has_several = len({one.component for one in board.models}) > 1
    rows = []
    for one in board.models:
        row = {
            "rank": str(one.rank),
            "model": one.model,
            "group": " ".join(one.groups),
            "rating": f"{one.rating:,.0f}",
            "95 % interval": interval(one.low, one.high),
            "win share": percent(one.win_share),
            "comparisons": count(one.comparisons),
            "tasks": count(one.tasks),
        }
        rows.append(row | ({"connected": str(one.component + 1)} if has_several else {}))
    return rows


def share_rows(board: ArenaBoard) -> list[dict[str, str]]:
    """Return the matrix of win shares: a row per model, a column per opponent."""
    names = [one.model for one in board.models]
    return [{"model": name} | {other: _share(board, name, other) for other in names} for name in names]


def judge_rows(board: ArenaBoard) -> list[dict[str, str]]:
    """Return the judge's record as one row; no row without comparisons."""
    record = board.judge
    if not record.orders:
        return []
    made = record.agreement
    alpha = "–" if made is None or made.alpha is None else f"{made.alpha:.2f}"
    limits = "–" if made is None or made.low is None or made.high is None else f"{made.low:.2f} to {made.high:.2f}"
    return [
        {
            "judge": record.name,
            "both orders": count(record.orders),
            "order changed it": percent(record.undecided / record.orders),
            "first preferred twice": percent(record.first_twice / record.orders),
            "second preferred twice": percent(record.second_twice / record.orders),
            "tie in both": percent(record.ties / record.orders),
            "alpha": alpha,
            "95 % interval": limits,
        }
    ]


def arena_document(board: ArenaBoard) -> dict[str, Any]:
    """Return the arena as JSON values; an infinite bound is null."""
    return {
        "judge": asdict(board.judge),
        "environments": list(board.environments),
        "tasks": board.tasks,
        "models": [
            asdict(one) | {"groups": list(one.groups), "low": _finite(one.low), "high": _finite(one.high)}
            for one in board.models
        ],
        "shares": [
            {"model": model, "against": other, "comparisons": number, "win_share": share}
            for (model, other), (number, share) in sorted(board.shares.items())
        ],
        "warnings": list(board.warnings),
    }


def interval(low: float, high: float) -> str:
    """Return the interval of a rating; a dash if it is unbounded."""
    return f"{low:,.0f} to {high:,.0f}" if math.isfinite(low) and math.isfinite(high) else "–"


def _share(board: ArenaBoard, model: str, other: str) -> str:
    if model == other:
        return ""
    made = board.shares.get((model, other))
    return "–" if made is None else f"{percent(made[1])} of {made[0]:,}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def arena_figure(board: ArenaBoard) -> Figure | None:
    """Return ratings with their intervals, a row per model; None without models."""
    shown = board.models[:DRAWN]
    if not shown:
        return None
    with drawing():
        figure = blank_figure(0.3 * len(shown) + 1.0)
        axes = figure.subplots()
        axes.axvline(ELO_MEAN, color=INK, linewidth=1, alpha=0.4)
        colours = [COLOURS[one.component % len(COLOURS)] for one in shown]
        draw_intervals(axes, [(n, one.low, one.rating, one.high, colours[n]) for n, one in enumerate(shown)])
        name_rows(axes, [short_name(one.model) for one in shown])
        axes.set_xlabel("rating")
    return figure


def arena_view(board: ArenaBoard, *, title: str = "Arena", period: str = "") -> Compared:
    """Return the arena as a page and as Markdown."""
    return Compared(
        title=title,
        period=period,
        tables=[
            ("Models", rating_rows(board)),
            ("Win share of the row against the column", share_rows(board) if len(board.models) <= _MATRIX else []),
            ("Judge", judge_rows(board)),
        ],
        problems=board.warnings,
        problems_title="Read this first",
        is_told_first=True,
        nothing="There are no comparisons with a verdict.",
        names=frozenset({"model", "judge", "group"}),
        definitions=ARENA_DEFINITIONS,
        figure_name="arena",
        caption=_CAPTION,
        draw=partial(arena_figure, board),
    )
