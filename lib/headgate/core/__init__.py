"""The vocabulary: tasks, samples, leases, events, errors, ids, time. Imports nothing else of Headgate."""

from headgate.core import errors, events, status
from headgate.core.budget import NO_SPENDING, ModelBudget, Spending
from headgate.core.capacity import CapacityPlan, CapacitySource, CapacityValue
from headgate.core.chat import Chat, ChatError, ChatReply, Message
from headgate.core.clock import DAY_S, Clock, SystemClock
from headgate.core.ids import (
    BatchId,
    HolderId,
    LeaseId,
    TaskId,
    checked_name,
    new_holder_id,
    new_run_id,
    new_trace_id,
    seed_of,
    task_id_of,
    unit_hash,
)
from headgate.core.lease import Denied, Lease, LeaseBook, ReleaseOutcome
from headgate.core.limits import student_limits, t_975, wilson_limits
from headgate.core.model import Model
from headgate.core.sample import ErrorKind, Sample
from headgate.core.secrets import Secret, redacted, secrets_known
from headgate.core.task import ONE_WORKER, Task, sample_task

__all__ = [
    "DAY_S",
    "NO_SPENDING",
    "ONE_WORKER",
    "BatchId",
    "CapacityPlan",
    "CapacitySource",
    "CapacityValue",
    "Chat",
    "ChatError",
    "ChatReply",
    "Clock",
    "Denied",
    "ErrorKind",
    "HolderId",
    "Lease",
    "LeaseBook",
    "LeaseId",
    "Message",
    "Model",
    "ModelBudget",
    "ReleaseOutcome",
    "Sample",
    "Secret",
    "Spending",
    "SystemClock",
    "Task",
    "TaskId",
    "checked_name",
    "errors",
    "events",
    "new_holder_id",
    "new_run_id",
    "new_trace_id",
    "redacted",
    "sample_task",
    "secrets_known",
    "seed_of",
    "status",
    "student_limits",
    "t_975",
    "task_id_of",
    "unit_hash",
    "wilson_limits",
]
