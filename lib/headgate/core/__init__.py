"""The vocabulary: tasks, samples, leases, events, errors, ids, time. Imports nothing else of Headgate."""

from headgate.core import errors, events, status
from headgate.core.addresses import IPAddress, ip_address_of, is_metadata_address, is_metadata_host
from headgate.core.audit import ANYBODY, AuditEntry, audit_entries, audit_file, record_change
from headgate.core.budget import NO_SPENDING, ModelBudget, Spending
from headgate.core.capacity import CapacityPlan, CapacitySource, CapacityValue
from headgate.core.chat import Chat, ChatError, ChatReply, Message
from headgate.core.clock import CLOCK_TOLERANCE_S, DAY_S, Clock, SystemClock, credible, require_agreement
from headgate.core.decoding import check_msgpack, json_value
from headgate.core.ids import (
    MAX_NAME_CHARS,
    MOST_PRIORITY,
    BatchId,
    HolderId,
    LeaseId,
    TaskId,
    checked_name,
    checked_text,
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
from headgate.core.secrets import Secret, masked, redacted, secrets_known
from headgate.core.suggestions import did_you_mean, nearest_name
from headgate.core.task import ONE_WORKER, Task, sample_task

__all__ = [
    "ANYBODY",
    "CLOCK_TOLERANCE_S",
    "DAY_S",
    "MAX_NAME_CHARS",
    "MOST_PRIORITY",
    "NO_SPENDING",
    "ONE_WORKER",
    "AuditEntry",
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
    "IPAddress",
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
    "audit_entries",
    "audit_file",
    "check_msgpack",
    "checked_name",
    "checked_text",
    "credible",
    "did_you_mean",
    "errors",
    "events",
    "ip_address_of",
    "is_metadata_address",
    "is_metadata_host",
    "json_value",
    "masked",
    "nearest_name",
    "new_holder_id",
    "new_run_id",
    "new_trace_id",
    "record_change",
    "redacted",
    "require_agreement",
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
