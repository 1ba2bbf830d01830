from . import errors as errors, events as events, status as status
from .addresses import (
    IPAddress as IPAddress,
    ip_address_of as ip_address_of,
    is_metadata_address as is_metadata_address,
    is_metadata_host as is_metadata_host,
)
from .audit import (
    ANYBODY as ANYBODY,
    AuditEntry as AuditEntry,
    audit_entries as audit_entries,
    audit_file as audit_file,
    record_change as record_change,
)
from .metrics import Metric as Metric
from .model import NO_SPENDING as NO_SPENDING, ModelBudget as ModelBudget, Spending as Spending, Model as Model
from .events.health import (
    CapacityPlan as CapacityPlan,
    CapacitySource as CapacitySource,
    CapacityValue as CapacityValue,
)
from .chat import Chat as Chat, ChatError as ChatError, ChatReply as ChatReply, Message as Message
from .clock import (
    CLOCK_TOLERANCE_S as CLOCK_TOLERANCE_S,
    DAY_S as DAY_S,
    Clock as Clock,
    SystemClock as SystemClock,
    credible as credible,
    require_agreement as require_agreement,
)
from .decoding import check_msgpack as check_msgpack, json_value as json_value
from .extras import missing_extra as missing_extra
from .ids import (
    BatchId as BatchId,
    HolderId as HolderId,
    LeaseId as LeaseId,
    TaskId as TaskId,
    checked_name as checked_name,
    new_holder_id as new_holder_id,
    new_run_id as new_run_id,
    new_trace_id as new_trace_id,
    seed_of as seed_of,
    task_id_of as task_id_of,
    unit_hash as unit_hash,
)
from .lease import Denied as Denied, Lease as Lease, LeaseBook as LeaseBook, ReleaseOutcome as ReleaseOutcome
from .limits import student_limits as student_limits, t_975 as t_975, wilson_limits as wilson_limits
from .sample import (
    ErrorKind as ErrorKind,
    Sample as Sample,
    ONE_WORKER as ONE_WORKER,
    Task as Task,
    sample_task as sample_task,
)
from .secrets import Secret as Secret, masked as masked, redacted as redacted, secrets_known as secrets_known
from .errors import did_you_mean as did_you_mean, nearest_name as nearest_name
from .flaws import flaws_in_words as flaws_in_words, text_like as text_like
from .ids import MAX_NAME_CHARS as MAX_NAME_CHARS
from .ids import MOST_PRIORITY as MOST_PRIORITY
from .ids import checked_text as checked_text
