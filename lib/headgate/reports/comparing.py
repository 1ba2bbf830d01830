"""Every two models of a leaderboard compared: corrected p-values, ranks, and groups that were not told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.reports.statistics import TaskScores
from headgate.statistics import MIN_COMMON_TASKS, PairedDifference, holm, indistinct_groups

_LEVEL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model against another on their common tasks.

    Attributes:
        difference: of `model` less `against`; None where they have too few common tasks.
        adjusted_p: p-value after Holm's correction for all comparisons of its family; None likewise.
        left_out: environment -> common tasks, of those that the difference leaves out for having too few.
        problem: why there is no difference; empty otherwise.
    """

    model: str
    against: str
    difference: PairedDifference | None
    adjusted_p: float | None
    left_out: Mapping[str, int]
    problem: str = ""

    @property
    def is_told_apart(self) -> bool:
        """Whether the two differ by more than chance explains."""
        return self.adjusted_p is not None and self.adjusted_p <= _LEVEL


def comparison(scores: TaskScores, model: str, against: str) -> Comparison:
    """Return `model` against `against`, not corrected yet."""
    difference, left_out = scores.difference(model, against)
    if difference is not None:
        return Comparison(model, against, difference, None, left_out)
    most = max(left_out.values())
    problem = f"too few common tasks ({most} in the environment with most, at least {MIN_COMMON_TASKS} are needed)"
    return Comparison(model, against, None, None, left_out, problem)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with p-values corrected for all of them."""
    values = iter(holm([one.difference.p_value for one in comparisons if one.difference is not None]))
    return [one if one.difference is None else replace(one, adjusted_p=next(values)) for one in comparisons]


def versus_reference(
    scores: TaskScores, order: Sequence[str], reference: str, pairs: Sequence[Comparison], *, is_chosen: bool
) -> dict[str, Comparison]:
    """Return each model against the reference.

    A reference that was chosen beforehand makes one comparison per model. One that is the best by these very samples
    could have been any of them, so its comparisons bear the correction for every two models.
    """
    found = [comparison(scores, model, reference) for model in order if model != reference]
    if is_chosen:
        return {one.model: one for one in adjusted(found)}
    corrected = {frozenset((pair.model, pair.against)): pair.adjusted_p for pair in pairs}
    return {one.model: replace(one, adjusted_p=corrected[frozenset((one.model, reference))]) for one in found}


def ranks_of(models: Sequence[str], pairs: Sequence[Comparison]) -> dict[str, int | None]:
    """Return 1 and one for each model that is better; None where a model of several could be compared with nobody."""
    told = [pair for pair in pairs if pair.difference is not None]
    compared = {model for pair in told for model in (pair.model, pair.against)}
    better = Counter(
        pair.against if pair.difference.difference > 0 else pair.model
        for pair in told
        if pair.is_told_apart and pair.difference is not None
    )
    return {model: 1 + better[model] if model in compared or len(models) == 1 else None for model in models}


def letters_of(order: Sequence[str], pairs: Sequence[Comparison]) -> dict[str, tuple[str, ...]]:
    """Return the letters of each model's groups; two that share one have not been told apart."""
    place = {model: number for number, model in enumerate(order)}
    apart = {(place[pair.model], place[pair.against]) for pair in pairs if pair.is_told_apart}
    groups = indistinct_groups(len(order), apart)
    return {
        model: tuple(_letter(number) for number, group in enumerate(groups) if place[model] in group) for model in order
    }


def _letter(number: int) -> str:
    """Return A to Z, then AA, AB, and so on."""
    head, last = divmod(number, 26)
    return (_letter(head - 1) if head else "") + chr(ord("A") + last)
