"""Statistics of evaluations: pure functions on arrays that know that a task sampled twice is one task."""

from headgate.statistics.anytime import ConfidenceSequence
from headgate.statistics.clustered import MeanEstimate, clustered_mean
from headgate.statistics.comparisons import holm, indistinct_groups
from headgate.statistics.paired import (
    MIN_COMMON_TASKS,
    PairedDifference,
    TaskPairs,
    mean_difference,
    paired_difference,
    task_pairs,
)
from headgate.statistics.pass_at_k import TooFewSamples, pass_at_k
from headgate.statistics.student import t_point, two_sided_p

__all__ = [
    "MIN_COMMON_TASKS",
    "ConfidenceSequence",
    "MeanEstimate",
    "PairedDifference",
    "TaskPairs",
    "TooFewSamples",
    "clustered_mean",
    "holm",
    "indistinct_groups",
    "mean_difference",
    "paired_difference",
    "pass_at_k",
    "t_point",
    "task_pairs",
    "two_sided_p",
]
