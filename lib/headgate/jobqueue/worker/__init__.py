"""The worker kit: clients of the job queue, workers, and a runner that turns any command into a worker.

Needs httpx and pydantic, and nothing from the server.
"""

from headgate.jobqueue.errors import (
    ForbiddenError,
    LeaseLost,
    MachineUnfitError,
    NoServerError,
    NotInAJobError,
    QueueUnreachableError,
    ResultRefusedError,
)
from headgate.jobqueue.reserved_server import ReservedServer
from headgate.jobqueue.worker.client import JobQueueClient, SyncJobQueueClient
from headgate.jobqueue.worker.command_jobs import COMMAND_TASK, CommandJobs, CommandRules, ReserveMode
from headgate.jobqueue.worker.held_job import HeldJob
from headgate.jobqueue.worker.requests import DEFAULT_URL, QueueAddress, RetryPolicy, queue_address
from headgate.jobqueue.worker.reservation import release_from_environment, reserve_from_environment
from headgate.jobqueue.worker.results import (
    Artifact,
    artifact_of,
    provenance,
    publish,
    publish_result,
    result_path,
    retract_result,
)
from headgate.jobqueue.worker.sync_worker import SyncHeldJob, SyncWorker
from headgate.jobqueue.worker.worker import TERMINATED, Worker, worker_name

__all__ = [
    "COMMAND_TASK",
    "DEFAULT_URL",
    "TERMINATED",
    "Artifact",
    "CommandJobs",
    "CommandRules",
    "ForbiddenError",
    "HeldJob",
    "JobQueueClient",
    "LeaseLost",
    "MachineUnfitError",
    "NoServerError",
    "NotInAJobError",
    "QueueAddress",
    "QueueUnreachableError",
    "ReserveMode",
    "ReservedServer",
    "ResultRefusedError",
    "RetryPolicy",
    "SyncHeldJob",
    "SyncJobQueueClient",
    "SyncWorker",
    "Worker",
    "artifact_of",
    "provenance",
    "publish",
    "publish_result",
    "queue_address",
    "release_from_environment",
    "reserve_from_environment",
    "result_path",
    "retract_result",
    "worker_name",
]
