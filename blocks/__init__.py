"""Headgate's Prefect blocks: typed configuration and storage, edited in the Prefect UI.

`prefect block register -m blocks` registers them with a Prefect server.
"""

from blocks.admission_limits import AdmissionLimits, EndpointLimit
from blocks.jobqueue_server import JobQueueServer
from blocks.judge_rubric import JudgeRubric, RubricCriterion
from blocks.loading import loaded_block
from blocks.model_roster import BlockRoster, ModelEndpoint, ModelRoster, RosterEntry
from blocks.ray_cluster import RayCluster
from blocks.report_store import PublishedReport, ReportStore
from blocks.sample_store import SampleStore

__all__ = [
    "AdmissionLimits",
    "BlockRoster",
    "EndpointLimit",
    "JobQueueServer",
    "JudgeRubric",
    "ModelEndpoint",
    "ModelRoster",
    "PublishedReport",
    "RayCluster",
    "ReportStore",
    "RosterEntry",
    "RubricCriterion",
    "SampleStore",
    "loaded_block",
]
