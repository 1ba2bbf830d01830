from . import (
    errors as errors,
    generator as generator,
    policy as policy,
    server as server,
    stores as stores,
    wire as wire,
    wire_servers as wire_servers,
    worker as worker,
)
from .job import (
    DEFAULT_MAX_ATTEMPTS as DEFAULT_MAX_ATTEMPTS,
    WITHDRAWN as WITHDRAWN,
    Job as Job,
    JobSpec as JobSpec,
    JobState as JobState,
)
from .ledger import Ledger as Ledger
from .names import NAME_CHARS as NAME_CHARS, id_prefix as id_prefix, object_text as object_text
from .outcomes import (
    ClaimRequest as ClaimRequest,
    Completion as Completion,
    Ended as Ended,
    ImportedJob as ImportedJob,
    Instant as Instant,
    LeaseRef as LeaseRef,
    Reserved as Reserved,
)
from .records import (
    Changes as Changes,
    Happening as Happening,
    HistoryEntry as HistoryEntry,
    JobQuery as JobQuery,
)
from .reserved_server import ReservedServer as ReservedServer, server_in as server_in
from .resource import ResourceSpec as ResourceSpec
from .stores.sql import Reader as Reader, Store as Store
from .writer import LedgerWriter as LedgerWriter
