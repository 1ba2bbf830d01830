"""Statistics of evaluations: pure functions on arrays that know that a task sampled twice is one task."""

from headgate.statistics.agreement import Agreement, krippendorff
from headgate.statistics.anytime import ConfidenceSequence
from headgate.statistics.bradley_terry import ELO_MEAN, Strengths, bradley_terry, holm, indistinct_groups, win_chance
from headgate.statistics.means import MeanEstimate, TooFewSamples, clustered_mean, pass_at_k, t_point, two_sided_p
from headgate.statistics.paired import (
    MIN_COMMON_TASKS,
    PairedDifference,
    TaskPairs,
    mean_difference,
    paired_difference,
    task_pairs,
)

__all__ = [
    "ELO_MEAN",
    "MIN_COMMON_TASKS",
    "Agreement",
    "ConfidenceSequence",
    "MeanEstimate",
    "PairedDifference",
    "Strengths",
    "TaskPairs",
    "TooFewSamples",
    "bradley_terry",
    "clustered_mean",
    "holm",
    "indistinct_groups",
    "krippendorff",
    "mean_difference",
    "paired_difference",
    "pass_at_k",
    "t_point",
    "task_pairs",
    "two_sided_p",
    "win_chance",
]
