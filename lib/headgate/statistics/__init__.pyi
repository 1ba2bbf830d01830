from .agreement import Agreement as Agreement, krippendorff as krippendorff
from .anytime import ConfidenceSequence as ConfidenceSequence
from .bradley_terry import (
    ELO_MEAN as ELO_MEAN,
    Strengths as Strengths,
    bradley_terry as bradley_terry,
    holm as holm,
    indistinct_groups as indistinct_groups,
    win_chance as win_chance,
)
from .change import ScoreChange as ScoreChange
from .means import (
    MeanEstimate as MeanEstimate,
    Method as Method,
    TooFewSamples as TooFewSamples,
    majority_at_k as majority_at_k,
    clustered_mean as clustered_mean,
    independent_mean as independent_mean,
    mean_by_task as mean_by_task,
    mean_of_means as mean_of_means,
    mean_of_sums as mean_of_sums,
    pass_at_k as pass_at_k,
    t_point as t_point,
    two_sided_p as two_sided_p,
)
from .paired import (
    MIN_COMMON_TASKS as MIN_COMMON_TASKS,
    PairedDifference as PairedDifference,
    mean_difference as mean_difference,
    task_pairs as task_pairs,
)
from .ranking import PairDecision as PairDecision, PairwiseRanking as PairwiseRanking, Verdict as Verdict
from .means import NO_SPREAD as NO_SPREAD, wilson_limits as wilson_limits
