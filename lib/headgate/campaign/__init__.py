"""A campaign: one run of sampling that joins demand, queue, workers, journal and store."""

from headgate.campaign import arena, budgets
from headgate.campaign.assembly import OnProgress, OnStatus, roster_of, run_campaign, run_judged, sampled_environments
from headgate.campaign.campaign import Campaign, CampaignResult
from headgate.campaign.capacity import capacity_plan
from headgate.campaign.collecting import rare_collections
from headgate.campaign.endpoints import ChatSender, EndpointChats
from headgate.campaign.job_collecting import JobCollector, ScoreTally
from headgate.campaign.job_draining import DrainResult, DrainRules, QueueProgress, TaskProgress, drain_queue
from headgate.campaign.job_samples import SCORE_FIELD, JobSampleRules, model_of_team, sample_of_job, stored_name
from headgate.campaign.judging import JUDGE_PREFIX, JudgedPair, Judging, judge_of
from headgate.campaign.matrix import MatrixTaskProvider
from headgate.campaign.models_at_hand import model_at_hand, models_at_hand
from headgate.campaign.plan import CampaignPlan, CampaignStore, ChatSource, ChosenModels, rates_of
from headgate.campaign.request_side import RequestSide
from headgate.campaign.status import RunProgress
from headgate.campaign.trial import Trial, trial

__all__ = [
    "JUDGE_PREFIX",
    "SCORE_FIELD",
    "Campaign",
    "CampaignPlan",
    "CampaignResult",
    "CampaignStore",
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
    "RunProgress",
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
