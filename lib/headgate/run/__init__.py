"""A run of a campaign that joins demand, queue, workers, journal and store."""

from headgate.run import arena, budgets
from headgate.run.assembly import OnProgress, OnStatus, roster_of, run_campaign, run_judged, sampled_environments
from headgate.run.capacity import capacity_plan
from headgate.run.endpoints import ChatSender, EndpointChats
from headgate.run.garbage import rare_collections
from headgate.run.job_collector import JobCollector, ScoreTally
from headgate.run.job_samples import SCORE_FIELD, JobSampleRules, model_of_team, sample_of_job, stored_name
from headgate.run.judging import JUDGE_PREFIX, JudgedPair, Judging, judge_of
from headgate.run.matrix import MatrixTaskProvider
from headgate.run.models_at_hand import model_at_hand, models_at_hand
from headgate.run.plan import ChatSource, ChosenModels, RunPlan, RunStore, rates_of
from headgate.run.queue_drain import DrainResult, DrainRules, QueueProgress, TaskProgress, drain_queue
from headgate.run.request_side import RequestSide
from headgate.run.run import Run
from headgate.run.status import RunProgress, RunResult
from headgate.run.trial import Trial, trial

__all__ = [
    "JUDGE_PREFIX",
    "SCORE_FIELD",
    "ChatSender",
    "ChatSource",
    "ChosenModels",
    "DrainResult",
    "DrainRules",
    "EndpointChats",
    "JobCollector",
    "JobSampleRules",
    "JudgedPair",
    "Judging",
    "MatrixTaskProvider",
    "OnProgress",
    "OnStatus",
    "QueueProgress",
    "RequestSide",
    "Run",
    "RunPlan",
    "RunProgress",
    "RunResult",
    "RunStore",
    "ScoreTally",
    "TaskProgress",
    "Trial",
    "arena",
    "budgets",
    "capacity_plan",
    "drain_queue",
    "judge_of",
    "model_at_hand",
    "model_of_team",
    "models_at_hand",
    "rare_collections",
    "rates_of",
    "roster_of",
    "run_campaign",
    "run_judged",
    "sample_of_job",
    "sampled_environments",
    "stored_name",
    "trial",
]
