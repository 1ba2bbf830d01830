"""A campaign: one run of sampling that joins demand, queue, workers, journal and store."""

from headgate.campaign.campaign import Campaign, CampaignResult
from headgate.campaign.plan import CampaignPlan, CampaignStore, ChatSource

__all__ = ["Campaign", "CampaignPlan", "CampaignResult", "CampaignStore", "ChatSource"]
