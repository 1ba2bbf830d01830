"""pass@k: the share of tasks that at least one of k samples solves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.core.errors import InvalidInputError
from headgate.statistics.clustered import MeanEstimate, clustered_mean


@dataclass(frozen=True, slots=True)
class TooFewSamples:
    """Why there is no pass@k.

    Attributes:
        k: what was asked for.
        most: samples of the task that has most.
    """

    k: int
    most: int

    def __str__(self) -> str:
        return f"pass@{self.k} needs {self.k} scored samples of a task (the most that any has is {self.most})"


def pass_at_k(successes: Sequence[int], samples: Sequence[int], k: int) -> MeanEstimate | TooFewSamples:
    """Return the mean of pass@k over the tasks with `k` samples or more, with its interval by task.

    Each task's value is the unbiased 1 - C(n - c, k) / C(n, k) of Chen et al. (2021). The interval is that of the
    mean of these values over tasks, which are what is independent: Student's, or Wilson's where every value is 0 or 1.
    Tasks with fewer samples are left out; `tasks` of the result says how many took part.

    Args:
        successes: of each task.
        samples: of each task, scored ones.
        k: >= 1.

    Raises:
        InvalidInputError: if `k` is below 1.
    """
    if k < 1:
        raise InvalidInputError(f"k of pass@k must be >= 1 (got {k})")
    pairs = [(c, n) for c, n in zip(successes, samples, strict=True) if n >= k]
    if not pairs:
        return TooFewSamples(k, max(samples, default=0))
    made = clustered_mean([_value(c, n, k) for c, n in pairs], range(len(pairs)))
    assert made is not None, "there is a task"
    return made


def _value(successes: int, samples: int, k: int) -> float:
    failures = samples - successes
    if failures < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / number for number in range(failures + 1, samples + 1))
