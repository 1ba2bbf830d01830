"""Strengths from pairwise comparisons: the Bradley-Terry model, with intervals clustered by task."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.statistics.means import t_point, two_sided_p

Floats = NDArray[np.float64]

ELO_MEAN: Final = 1_000.0
"""Mean rating of models that are connected by comparisons."""

ELO_PER_UNIT: Final = 400 / math.log(10)
"""Elo's scale: 400 points are odds of 10 to 1."""

_PRIOR_SD: Final = 800 / ELO_PER_UNIT
"""A priori two thirds of all strengths lie within 800 points of the mean: a weak prior that keeps ratings finite."""

_MIN_TASKS: Final = 2
_STRETCHED: Final = 1.5
"""For strengths further apart than this, odds of 4.5 to 1, the normal approximation of an estimate breaks down."""

_STEPS: Final = 100
_DONE: Final = 1e-10
_LEVEL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Strengths:
    """Estimated strengths of models 0 to n - 1.

    Attributes:
        rating: rating of each model on Elo's scale.
        low: lower limit of the 95 % interval of each rating, relative to its component's mean; `high` is the upper.
        p_values: p-value of each pair, Holm-adjusted over all connected pairs; 1 for pairs that are not connected.
        component: number of each model's group, connected by comparisons; ratings of two groups cannot be compared.
        tasks: number of distinct tasks among the comparisons.
    """

    rating: Floats
    low: Floats
    high: Floats
    p_values: Floats
    component: NDArray[np.int64]
    tasks: int

    def told_apart(self) -> set[tuple[int, int]]:
        """Return the pairs of models, lower number first, that differ significantly."""
        first, second = np.nonzero(np.triu(self.p_values <= _LEVEL, 1))
        return {(int(one), int(other)) for one, other in zip(first, second, strict=True)}

    def ranks(self) -> list[int]:
        """Return each model's rank: 1 plus the number of models of its group that are significantly better."""
        better = (self.p_values <= _LEVEL) & (self.rating[None, :] > self.rating[:, None])
        return [1 + int(count) for count in better.sum(axis=1)]


def bradley_terry(first: ArrayLike, second: ArrayLike, score: ArrayLike, tasks: ArrayLike, models: int) -> Strengths:
    """Return the strengths estimated from comparisons, whose order does not matter.

    The probability that one model beats another is 1 / (1 + exp(strength of the other - its own)) (Bradley and Terry
    1952); a tie is half a win for each. The fit maximizes the posterior under a normal prior of 800 Elo points, which
    keeps the strength of models that never lost finite and hardly affects the others.

    Comparisons of one task are not independent: they share the task, and answers. So the covariance is the sandwich
    estimate clustered by task, with G / (G - 1) for G tasks and Student's t with G - 1 degrees of freedom. The variance
    of a difference is at least that of independent wins and losses: the sandwich alone would be certain about a model
    that won everything, and about two that always tied because the judge could not tell them apart.

    Args:
        first: for each comparison, the number of one model.
        second: the number of the other model.
        score: score of the first model, in [0, 1]: 1 for a win, 0.5 for a tie, 0 for a loss.
        tasks: for each comparison, its task.
        models: number of models; those without a comparison are components of their own.

    Raises:
        ValueError: a model is compared with itself, or a score is outside [0, 1].
    """
    one, other = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    won = np.asarray(score, dtype=np.float64)
    if bool((one == other).any()) or not bool(((won >= 0) & (won <= 1)).all()):
        raise ValueError("two different models are compared, with a score in [0, 1]")
    strength = _fitted(_wins(one, other, won, models))
    _, cluster = np.unique(np.asarray(tasks), return_inverse=True)
    groups = int(cluster.max()) + 1 if cluster.size else 0
    component = _components(one, other, models)
    independent, clustered = _covariances(one, other, won, cluster.ravel(), groups, strength)
    centred = _contrasts(component)
    spread = np.sqrt(np.maximum(_variances(centred, independent), _variances(centred, clustered)))
    is_unknown = (np.bincount(component, minlength=1)[component] == 1) | (groups < _MIN_TASKS)
    half = np.where(is_unknown, math.inf, t_point(max(groups - 1, 1)) * spread * ELO_PER_UNIT)
    rating = ELO_MEAN + ELO_PER_UNIT * strength
    p_values = _p_values(_wins(one, other, won, models), strength, independent, clustered, component, groups)
    return Strengths(rating, rating - half, rating + half, p_values, component, groups)


def win_chance(rating: float, other: float) -> float:
    """Return the probability that a model of one rating beats one of another."""
    return 1 / (1 + 10 ** ((other - rating) / 400))


def _wins(one: NDArray[np.int64], other: NDArray[np.int64], won: Floats, models: int) -> Floats:
    """Return how often each model (row) won against each other model (column)."""
    wins: Floats = np.zeros((models, models))
    np.add.at(wins, (one, other), won)
    np.add.at(wins, (other, one), 1 - won)
    return wins


def _loss(wins: Floats, strength: Floats) -> float:
    apart = strength[:, None] - strength[None, :]
    return float((wins * np.logaddexp(0, -apart)).sum() + (strength**2).sum() / (2 * _PRIOR_SD**2))


def _fitted(wins: Floats, equal: tuple[int, int] | None = None, start: Floats | None = None) -> Floats:
    """Return the strengths of the highest posterior density, by Newton's method with backtracking steps.

    Args:
        wins: see `_wins`.
        equal: two models constrained to equal strength.
        start: initial strengths.
    """
    models = wins.shape[0]
    fold = np.eye(models)
    if equal is not None:
        fold[:, equal[0]] += fold[:, equal[1]]
        fold = np.delete(fold, equal[1], axis=1)
    games = wins + wins.T
    strength: Floats = np.zeros(models) if start is None else fold @ (fold.T @ start / fold.sum(axis=0))
    for _ in range(_STEPS):
        chance = _chance(strength[:, None] - strength[None, :])
        gradient = fold.T @ ((wins - games * chance).sum(axis=1) - strength / _PRIOR_SD**2)
        if np.abs(gradient).max(initial=0.0) < _DONE * (1 + games.sum()):
            break
        step = fold @ np.linalg.solve(fold.T @ _information(games, chance) @ fold, gradient)
        now, size = _loss(wins, strength), 1.0
        while _loss(wins, strength + size * step) > now and size > _DONE:
            size /= 2
        strength = strength + size * step
    return strength


def _chance(apart: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0, -apart)), dtype=np.float64)


def _information(games: Floats, chance: Floats) -> Floats:
    weight = games * chance * (1 - chance)
    return np.asarray(np.diag(weight.sum(axis=1) + 1 / _PRIOR_SD**2) - weight, dtype=np.float64)


def _covariances(
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    won: Floats,
    cluster: NDArray[np.int64],
    groups: int,
    strength: Floats,
) -> tuple[Floats, Floats]:
    """Return the covariance for independent comparisons, and the one clustered by task."""
    models = strength.size
    games = np.zeros((models, models))
    np.add.at(games, (one, other), 1.0)
    games += games.T
    bread = np.linalg.inv(_information(games, _chance(strength[:, None] - strength[None, :])))
    residual = won - _chance(strength[one] - strength[other])
    slopes = np.zeros((max(groups, 1), models))
    np.add.at(slopes, (cluster, one), residual)
    np.add.at(slopes, (cluster, other), -residual)
    correction = groups / (groups - 1) if groups > 1 else 1.0
    clustered = correction * bread @ (slopes.T @ slopes) @ bread
    return np.asarray(bread, dtype=np.float64), np.asarray(clustered, dtype=np.float64)


def _components(one: NDArray[np.int64], other: NDArray[np.int64], models: int) -> NDArray[np.int64]:
    """Return the number of each model's component; components are numbered by their first model."""
    root = list(range(models))

    def found(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    for left, right in sorted(set(zip(one.tolist(), other.tolist(), strict=True))):
        low, high = sorted((found(left), found(right)))
        root[high] = low
    roots = [found(place) for place in range(models)]
    numbers = {first: number for number, first in enumerate(sorted(set(roots)))}
    return np.asarray([numbers[each] for each in roots], dtype=np.int64)


def _contrasts(component: NDArray[np.int64]) -> Floats:
    """Return, as a row of weights per model, its deviation from the mean strength of its component."""
    is_same = component[:, None] == component[None, :]
    return np.asarray(np.eye(component.size) - is_same / is_same.sum(axis=1, keepdims=True), dtype=np.float64)


def _variances(contrasts: Floats, covariance: Floats) -> Floats:
    return np.asarray(np.einsum("ij,jk,ik->i", contrasts, covariance, contrasts), dtype=np.float64).clip(0.0)


def _p_values(
    wins: Floats,
    strength: Floats,
    independent: Floats,
    clustered: Floats,
    component: NDArray[np.int64],
    groups: int,
) -> Floats:
    """Return the Holm-adjusted p-values of all connected pairs of models.

    The strength of a model that wins everything is so uncertain that the ratio of difference to error would not tell it
    apart (Hauck and Donner 1977). For such pairs the likelihood ratio is used, scaled by how much more the clustered
    comparisons vary than independent ones (Rao and Scott 1984).
    """
    models = strength.size
    adjusted: Floats = np.ones((models, models))
    left, right = np.triu_indices(models, 1)
    is_connected = component[left] == component[right]
    left, right = left[is_connected], right[is_connected]
    if groups < _MIN_TASKS or not left.size:
        return adjusted
    plain, by_task = (c[left, left] + c[right, right] - 2 * c[left, right] for c in (independent, clustered))
    apart = np.abs(strength[left] - strength[right])
    ratios = apart / np.sqrt(np.maximum(plain, by_task))
    best = _loss(wins, strength)
    for place in np.flatnonzero((apart > _STRETCHED) & (ratios > 1)):
        pair = (int(left[place]), int(right[place]))
        gain = 2 * (_loss(wins, _fitted(wins, pair, strength)) - best) / max(1.0, by_task[place] / plain[place])
        ratios[place] = math.sqrt(max(0.0, gain))
    adjusted[left, right] = holm([two_sided_p(float(ratio), groups - 1) for ratio in ratios])
    adjusted[right, left] = adjusted[left, right]
    return adjusted


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) adjusted p-values, in the given order.

    Rejecting every comparison whose adjusted value is at most a makes any false rejection with probability at most a,
    however the comparisons depend on each other.
    """
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = max(running, min(1.0, p_values[place] * (len(p_values) - step)))
        adjusted[place] = running
    return adjusted


def indistinct_groups(count: int, told_apart: Collection[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the maximal groups of 0 to `count` - 1 in which no two were told apart, ordered by their members.

    Two that share no group were told apart (compact letter display, Piepho 2004, by insertion and absorption).
    """
    groups = [(1 << count) - 1] if count else []
    for first, second in sorted(told_apart):
        both = 1 << first | 1 << second
        split = [group for group in groups if group & both == both]
        groups = [group for group in groups if group & both != both]
        for part in [group & ~(1 << out) for group in split for out in (first, second)]:
            if not any(part & group == part for group in groups):
                groups = [group for group in groups if group & part != group]
                groups.append(part)
    return sorted(tuple(place for place in range(count) if group >> place & 1) for group in groups)
