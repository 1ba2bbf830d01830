"""Campaigns whose answers a judge reads: rollout, judgements and aggregate of each sample, in one queue."""

from headgate.campaign.judged.assembly import JUDGE_PREFIX, OnProgress, judge_of, run_judged
from headgate.campaign.judged.figures import JudgedPair
from headgate.campaign.judged.plan import JudgedPlan
from headgate.campaign.judged.progress import JudgedProgress, JudgedResult
from headgate.campaign.judged.run import JudgedRun

__all__ = [
    "JUDGE_PREFIX",
    "JudgedPair",
    "JudgedPlan",
    "JudgedProgress",
    "JudgedResult",
    "JudgedRun",
    "OnProgress",
    "judge_of",
    "run_judged",
]
