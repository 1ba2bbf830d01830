from . import (
    addresses as addresses,
    audit as audit,
    documents as documents,
    errors as errors,
    events as events,
    flaws as flaws,
    rates as rates,
    status as status,
    tasks as tasks,
)
from .price import LanePrice as LanePrice, Price as Price, Prices as Prices
from .metrics import Metric as Metric
from .metrics import metrics_of as metrics_of
from .model import NO_SPENDING as NO_SPENDING, ModelBudget as ModelBudget, Spending as Spending, Model as Model
from .chat import (
    COUNTS as COUNTS,
    Chat as Chat,
    ChatError as ChatError,
    ChatReply as ChatReply,
    Message as Message,
)
from .clock import (
    CLOCK_TOLERANCE_S as CLOCK_TOLERANCE_S,
    DAY_S as DAY_S,
    Clock as Clock,
    SystemClock as SystemClock,
    credible as credible,
    iso_text as iso_text,
    require_agreement as require_agreement,
    until_set as until_set,
    utc_text as utc_text,
)
from .decoding import (
    Halves as Halves,
    check_msgpack as check_msgpack,
    json_value as json_value,
    storable as storable,
)
from .extras import entry_points_of as entry_points_of, missing_extra as missing_extra, names_by_stub as names_by_stub
from .ids import (
    BatchId as BatchId,
    HolderId as HolderId,
    TaskId as TaskId,
    checked_name as checked_name,
    new_holder_id as new_holder_id,
    new_run_id as new_run_id,
    new_trace_id as new_trace_id,
    request_seed_of as request_seed_of,
    seed_of as seed_of,
    task_id_of as task_id_of,
    unit_hash as unit_hash,
)
from .lease import Denied as Denied, Lease as Lease, LeaseBook as LeaseBook, ReleaseOutcome as ReleaseOutcome
from .record import record as record
from .sample import ErrorKind as ErrorKind, Sample as Sample, Task as Task, sample_task as sample_task
from .serving import ENGINE_PRIORITY as ENGINE_PRIORITY, Launch as Launch, Program as Program, Serving as Serving
from .secrets import Secret as Secret, masked as masked, redacted as redacted, secrets_known as secrets_known
from .timers import TimerHeap as TimerHeap
from .ids import MAX_NAME_CHARS as MAX_NAME_CHARS
from .ids import MOST_PRIORITY as MOST_PRIORITY
from .ids import checked_text as checked_text
from .clock import moment_of as moment_of
