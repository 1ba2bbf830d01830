"""What stands below a ranking: what its means and differences leave out, and what could change its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from headgate.reports.leaderboard import MAX_MODELS, Leaderboard, MissingRule
from headgate.reports.wording import count, score
from headgate.statistics import MIN_COMMON_TASKS

FEWER: Final = " *"
"""Marks a mean that is not over all environments, and a difference that is not over all tasks of both models."""

COULD_MOVE: Final = " †"
"""Marks a rank that missing scores could change."""

_NAMED: Final = 5

_COUNTED_AS: Final[Mapping[MissingRule, str]] = {
    "bound": "Order, ranks, groups and differences count a missing score as 0: failing gains nothing. Means leave it "
    "out; intervals reach from all of them 0 to all of them 1.",
    "zero": "A missing score counts as 0 everywhere.",
    "exclude": "Missing scores are left out everywhere: a model that fails where it is unsure ranks higher by it.",
}


def leaderboard_notes(board: Leaderboard, *, of_differences: bool = True) -> tuple[str, ...]:
    """Return a sentence for each mark and each gap in the leaderboard's tables, those `of_differences` if they show."""
    return (*_means(board), *(_differences(board) if of_differences else ()), *_missing(board), *_ranks(board))


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
            told.append((one.model, f"difference from {board.against} over common tasks alone{less}."))
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
            f"{_listed(told, '; ')}."
        )
    if board.unscored:
        told = [f"{model} ({count(samples)})" for model, samples in board.unscored.items()]
        yield f"Not ranked, since none of their samples has a score: {_listed(told)}."


def _ranks(board: Leaderboard) -> Iterator[str]:
    if len(board.standings) > MAX_MODELS:
        yield f"No ranks: at most {MAX_MODELS} models are compared with each other (here {len(board.standings)})."
        return
    ranks = [one.rank for one in board.standings]
    if any(ranks.count(rank) > 1 for rank in ranks if rank is not None):
        yield "Models that share a rank are tied: as many others are better than each by more than chance explains."
    if None in ranks:
        yield f"– has no rank: no other model shares {MIN_COMMON_TASKS} tasks of an environment with it."


def _same(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each sentence once, after the names of all of whom it is said."""
    for sentence, said in groupby(sorted(told, key=lambda one: one[1]), key=lambda one: one[1]):
        yield f"* {_listed([name for name, _ in said])}: {sentence}"


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    more = len(names) - _NAMED
    return separator.join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
