"""The mean of scores whose tasks repeat, with an interval by tasks rather than samples."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import Final, Literal

from headgate.core.errors import InvalidInputError

_T_975: Final = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The 97.5 % points of Student's t with 1 to 10 degrees of freedom; above, the series below is accurate to 1e-4."""


NO_SPREAD: Final = 1e-12
"""A variance of scores in [0, 1] below this is only rounding error.

Equal scores say nothing about the spread of others, and Student's interval would have no width: they get Wilson's
interval, which assumes the largest possible spread.
"""


def wilson_limits(count: float, share: float) -> tuple[float, float]:
    """Return the limits of a share of `count` > 0 scores that are each 0 or 1.

    Wilson's interval (1927) keeps its coverage near 0 and 1, where the textbook one has no width.
    """
    square = _Z**2 / count
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    # At the ends the limits are exactly 0 and 1; rounding could put the mean outside its own interval.
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return low, high


def student_limits(count: int, mean: float, variance: float) -> tuple[float, float]:
    """Return the limits of the mean of `count` >= 2 scores in [0, 1] with a sample variance above `NO_SPREAD`."""
    half = t_975(count - 1) * math.sqrt(max(0.0, variance) / count)
    return max(0.0, mean - half), min(1.0, mean + half)


def t_975(degrees: int) -> float:
    """Return the 97.5 % point of Student's t with `degrees` >= 1 degrees of freedom, accurate to 1e-4.

    Above 10 by the series of Fisher and Cornish in powers of 1/degrees (Abramowitz & Stegun, 26.7.5).
    """
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z, inverse = _Z, 1 / degrees
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return math.fsum(term * inverse**power for power, term in enumerate(terms))


_TINY: Final = 1e-300
_STEPS: Final = 500
_LEVEL: Final = 0.05


def two_sided_p(t: float, degrees: float) -> float:
    """Return the two-sided p-value of `t` under Student's t with `degrees` > 0 degrees of freedom."""
    if math.isinf(t):
        return 0.0
    return _beta_share(degrees / (degrees + t * t), degrees / 2, 0.5)


def t_point(degrees: float) -> float:
    """Return the 97.5 % point of Student's t with `degrees` >= 1, which are rounded down to hundredths."""
    return _t_point(math.floor(100 * degrees + 1e-6))


@lru_cache(maxsize=4_096)
def _t_point(hundredths: int) -> float:
    degrees = hundredths / 100
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    point = t_975(math.ceil(degrees))  # not above the solution, so that Newton's steps never pass it
    while True:
        density: float = scale * (1 + point * point / degrees) ** (-(degrees + 1) / 2)
        step = (two_sided_p(point, degrees) - _LEVEL) / (2 * density)
        point += step
        if abs(step) < 1e-9:
            return point


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by Lentz's continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):  # the fraction converges slowly here, but fast on the other side
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    value = upper = 1.0
    lower = 0.0
    for step in range(_STEPS):
        half, is_odd = divmod(step, 2)
        if step == 0:
            term = 1.0
        elif is_odd:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1 / _nonzero(1 + term * lower)
        upper = _nonzero(1 + term / upper)
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-14:
            break
    return front * (value - 1) / a


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


Method = Literal["wilson", "t", "clustered wilson", "clustered t", "none", "combined"]

_Z: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean of scores in [0, 1] with its 95 % interval.

    Attributes:
        samples: number of scores.
        tasks: number of distinct tasks among them.
        mean: mean of all samples, equally weighted.
        low: lower limit, in [0, 1], at most the mean.
        high: upper limit, in [0, 1], at least the mean.
        method: `wilson` and `t` if every task has one sample; `clustered wilson` and `clustered t` if tasks repeat;
            `none` for a single task, which says nothing about the spread between tasks (then [0, 1]); `combined` for a
            mean of means.
        design_effect: clustered variance of the mean divided by that of as many independent samples; 1 if no task
            repeats or it is unknown.
    """

    samples: int
    tasks: int
    mean: float
    low: float
    high: float
    method: Method
    design_effect: float = 1.0


def clustered_mean(scores: Iterable[float], tasks: Iterable[Hashable]) -> MeanEstimate | None:
    """Return the mean of scores with an interval by task; None if there are no scores.

    The variance of the mean is the cluster-robust one with the small-sample correction of Bell and McCaffrey (2002),
    which for a mean has a closed form: with n samples, m_g of them of task g, h_g = m_g / n, and r_g the sum of task
    g's deviations from the mean, V = sum(r_g^2 / (1 - h_g)) / n^2. Without the correction it is the clustered standard
    error of Miller (2024, "Adding error bars to evals"). The degrees of freedom are Satterthwaite's: the number of
    tasks minus one if all tasks have equally many samples.

    If every task has one sample it is exactly the interval of `headgate summary`: Wilson's or Student's. Samples of one
    task are not negatively correlated, so the interval is never narrower than the one for independent samples.

    Args:
        scores: scores in [0, 1].
        tasks: for each score, its task.
    """
    by_task = defaultdict[Hashable, list[float]](list)
    for score, task in zip(scores, tasks, strict=True):
        by_task[task].append(float(score))
    values = [score for group in by_task.values() for score in group]
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    is_binary = {0.0, 1.0}.issuperset(values)
    variance = math.fsum((score - mean) ** 2 for score in values) / (n - 1) if n > 1 else 0.0
    if len(by_task) in {1, n}:
        return mean_by_task(n, len(by_task), mean, variance, is_binary=is_binary, clustered=0.0, degrees=1.0)
    sums = [math.fsum(score - mean for score in group) for group in by_task.values()]
    clustered, degrees = _variance_by_task(sums, [len(group) for group in by_task.values()])
    return mean_by_task(n, len(by_task), mean, variance, is_binary=is_binary, clustered=clustered, degrees=degrees)


def mean_by_task(
    n: int, tasks: int, mean: float, variance: float, *, is_binary: bool, clustered: float, degrees: float
) -> MeanEstimate:
    """Return the estimate for `n` >= 1 scores of `tasks` tasks; see `clustered_mean`.

    Args:
        n: number of scores.
        tasks: number of distinct tasks.
        mean: mean of the scores.
        variance: sample variance of the scores; 0 for a single score.
        is_binary: whether each score is 0 or 1.
        clustered: variance of the mean by task; ignored if no task repeats, or there is only one task.
        degrees: its degrees of freedom; ignored likewise.
    """
    if tasks == n:
        return independent_mean(n, mean, variance, is_binary=is_binary)
    if tasks == 1:
        return MeanEstimate(n, 1, mean, 0.0, 1.0, "none")
    has_spread = variance >= NO_SPREAD
    effect = clustered / (variance / n) if has_spread else 1.0
    if is_binary or not has_spread:
        # If all scores are equal the correlation is unknown: then each task counts as one sample. Otherwise Korn and
        # Graubard 1998: Wilson's interval with the equivalent number of independent samples.
        effective = n / max(1.0, effect) * (_Z / t_point(degrees)) ** 2 if has_spread else float(tasks)
        return MeanEstimate(n, tasks, mean, *wilson_limits(effective, mean), "clustered wilson", effect)
    half = t_point(degrees) * math.sqrt(max(clustered, variance / n))
    low, high = max(0.0, mean - half), min(1.0, mean + half)
    return MeanEstimate(n, tasks, mean, low, high, "clustered t", effect)


def independent_mean(n: int, mean: float, variance: float, *, is_binary: bool) -> MeanEstimate:
    """Return the estimate for `n` >= 1 independent scores, from their mean and sample variance."""
    if n == 1 and not is_binary:
        return MeanEstimate(n, n, mean, 0.0, 1.0, "none")
    if is_binary or variance < NO_SPREAD:
        return MeanEstimate(n, n, mean, *wilson_limits(n, mean), "wilson")
    return MeanEstimate(n, n, mean, *student_limits(n, mean, variance), "t")


def mean_of_sums(n: int, total: float, squares: float, *, is_binary: bool) -> MeanEstimate:
    """Return the estimate for `n` >= 1 independent scores, from their sum and sum of squares."""
    mean = total / n
    variance = max(0.0, squares - total * mean) / (n - 1) if n > 1 else 0.0
    return independent_mean(n, mean, variance, is_binary=is_binary)


def mean_of_means(parts: Sequence[MeanEstimate]) -> MeanEstimate:
    """Return the unweighted mean of >= 1 independent estimates.

    The interval recovers each estimate's variance from its own limits (MOVER; Zou and Donner 2008), so it keeps its
    coverage if one of them is 0 or 1.
    """
    k = len(parts)
    mean = math.fsum(part.mean for part in parts) / k
    below = math.sqrt(math.fsum((part.mean - part.low) ** 2 for part in parts)) / k
    above = math.sqrt(math.fsum((part.high - part.mean) ** 2 for part in parts)) / k
    samples, tasks = sum(part.samples for part in parts), sum(part.tasks for part in parts)
    return MeanEstimate(samples, tasks, mean, max(0.0, mean - below), min(1.0, mean + above), "combined")


def _variance_by_task(sums: Sequence[float], sizes: Sequence[int]) -> tuple[float, float]:
    """Return the variance of the mean and its degrees of freedom, from each task's sum of deviations and its size."""
    n = sum(sizes)
    leverages = [size / n for size in sizes]
    variance = math.fsum(r**2 / (1 - h) for r, h in zip(sums, leverages, strict=True)) / n**2
    shares = [h**2 / (1 - h) for h in leverages]
    of_one = math.fsum(h**2 - share**2 for h, share in zip(leverages, shares, strict=True))
    return variance, max(1.0, 1 / (of_one + math.fsum(shares) ** 2))


Vote = tuple[str | None, bool]
"""A sample's answer (None if it has none), and whether it is a success."""


@dataclass(frozen=True, slots=True)
class TooFewSamples:
    """The reason why there is no pass@k, or no maj@k.

    Attributes:
        most: the largest number of samples that any task has.
    """

    k: int
    most: int
    measure: str = "pass"

    def __str__(self) -> str:
        return f"{self.measure}@{self.k} needs {self.k} scored samples of a task (the most that any has is {self.most})"


def pass_at_k(successes: Sequence[int], samples: Sequence[int], k: int) -> MeanEstimate | TooFewSamples:
    """Return the mean of pass@k over the tasks with `k` samples or more, with its interval by task.

    Each task's value is the unbiased 1 - C(n - c, k) / C(n, k) of Chen et al. (2021). The interval is that of the mean
    of these values over tasks, which are independent: Student's, or Wilson's if every value is 0 or 1. Tasks with fewer
    samples are left out; `tasks` of the result says how many took part.

    Args:
        successes: number of successes of each task.
        samples: number of scored samples of each task.
        k: at least 1.

    Raises:
        InvalidInputError: `k` is below 1.
    """
    _check_k(k, "pass")
    pairs = [(c, n) for c, n in zip(successes, samples, strict=True) if n >= k]
    if not pairs:
        return TooFewSamples(k, max(samples, default=0))
    made = clustered_mean([_value(c, n, k) for c, n in pairs], range(len(pairs)))
    assert made is not None, "there is a task"
    return made


def majority_at_k(votes: Sequence[Sequence[Vote]], k: int) -> MeanEstimate | TooFewSamples:
    """Return the mean of maj@k over the tasks with `k` samples or more, with its interval by task.

    Each task's samples are split in order into disjoint groups of `k`; its value is the mean over groups of whether
    the majority answer is a success. Tied answers count equally; a sample without an answer does not vote, and a group
    without any answer fails. The interval is that of `pass_at_k`.

    Args:
        votes: the samples of each task, in an order that is independent of their outcomes.
        k: at least 1.

    Raises:
        InvalidInputError: `k` is below 1.
    """
    _check_k(k, "maj")
    values = [
        fmean(_voted(task[start : start + k]) for start in range(0, len(task) - k + 1, k))
        for task in votes
        if len(task) >= k
    ]
    if not values:
        return TooFewSamples(k, max(map(len, votes), default=0), "maj")
    made = clustered_mean(values, range(len(values)))
    assert made is not None, "there is a task"
    return made


def _voted(group: Sequence[Vote]) -> float:
    """Return the mean success of the answers with the most votes."""
    ballots: dict[str, list[bool]] = {}
    for answer, success in group:
        if answer is not None:
            ballots.setdefault(answer, []).append(success)
    most = max(map(len, ballots.values()), default=0)
    return fmean(fmean(told) for told in ballots.values() if len(told) == most) if most else 0.0


def _check_k(k: int, measure: str) -> None:
    if k < 1:
        raise InvalidInputError(f"k of {measure}@k must be >= 1 (got {k})")


def _value(successes: int, samples: int, k: int) -> float:
    failures = samples - successes
    if failures < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / number for number in range(failures + 1, samples + 1))
