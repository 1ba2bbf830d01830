"""A campaign: one run of sampling that joins demand, queue, workers, journal and store."""

from headgate.campaign import judged
from headgate.campaign.assembly import OnStatus, roster_of, run_campaign, sample_store, sampled_environments
from headgate.campaign.campaign import Campaign, CampaignResult
from headgate.campaign.capacity import capacity_plan
from headgate.campaign.collecting import rare_collections
from headgate.campaign.endpoints import ChatSender, EndpointChats
from headgate.campaign.matrix import MatrixTaskProvider
from headgate.campaign.plan import CampaignPlan, CampaignStore, ChatSource, rates_of
from headgate.campaign.request_side import RequestSide

__all__ = [
    "Campaign",
    "CampaignPlan",
    "CampaignResult",
    "CampaignStore",
    "ChatSender",
    "ChatSource",
    "EndpointChats",
    "MatrixTaskProvider",
    "OnStatus",
    "RequestSide",
    "capacity_plan",
    "judged",
    "rare_collections",
    "rates_of",
    "roster_of",
    "run_campaign",
    "sample_store",
    "sampled_environments",
]
