"""Prefect blocks of Headgate: typed configuration and storage that a user edits in the Prefect UI.

`prefect block register -m blocks` makes them known to a Prefect server.
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
