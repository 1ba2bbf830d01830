from .batches import StoredBatch as StoredBatch, put_batch as put_batch
from .compaction import CompactionPolicy as CompactionPolicy
from .controls import (
    ORDERS as ORDERS,
    RECOUNT as RECOUNT,
    ControlChange as ControlChange,
    ControlOrder as ControlOrder,
    ControlValue as ControlValue,
    control_words as control_words,
    change_words as change_words,
    subject_of as subject_of,
    told as told,
    value_of as value_of,
    value_words as value_words,
)
from .deletion import Forgotten as Forgotten
from .exchange.exports import export_samples as export_samples
from .exchange.formats import (
    EXPORT_FORMATS as EXPORT_FORMATS,
    IMPORT_FORMATS as IMPORT_FORMATS,
    ExportFormat as ExportFormat,
    ImportFormat as ImportFormat,
)
from .exchange.imports import import_samples as import_samples
from .selection import Chosen as Chosen, require_named as require_named
from .journal import Journal as Journal, JournalHistory as JournalHistory, TaskState as TaskState
from .journal_database import JournalPlace as JournalPlace
from .journal_runs import ServedRun as ServedRun, address_to_ask as address_to_ask
from .journal_runs import runs_to_ask as runs_to_ask, served_runs as served_runs
from .journal_database import JOURNAL_AWAY as JOURNAL_AWAY, JOURNAL_REFUSED as JOURNAL_REFUSED
from .limits import LimitKey as LimitKey, LimitReport as LimitReport
from .manifest import Problem as Problem
from .mark_log import new_mark as new_mark
from .marks import EVERY_SAMPLE as EVERY_SAMPLE, Mark as Mark, Marks as Marks, Verb as Verb
from .invalidation import Invalidated as Invalidated, Invalidation as Invalidation, checked_reason as checked_reason
from .objects import FolderObjects as FolderObjects
from .pairs import AlreadyTaken as AlreadyTaken, Opening as Opening
from .recovery import repair as repair
from .request_batches import BatchedRequest as BatchedRequest, BatchRecord as BatchRecord
from .sample_index import (
    MOST_FOUND as MOST_FOUND,
    Order as Order,
    SampleFilter as SampleFilter,
    SampleIndex as SampleIndex,
    SamplePage as SamplePage,
    TextSearch as TextSearch,
)
from .schema import frame_of as frame_of, validated as validated
from .sink import BatchStore as BatchStore, JournalThread as JournalThread, Sink as Sink, SinkRules as SinkRules
from .spending import SpendingAnswer as SpendingAnswer, SpendingNeed as SpendingNeed, SpendingReport as SpendingReport
from .store import (
    LEASE_S as LEASE_S,
    SampleStore as SampleStore,
    StoreLocation as StoreLocation,
    open_objects as open_objects,
    open_store as open_store,
    sample_store as sample_store,
)
from .summary import History as History, PairHistory as PairHistory, PairSummary as PairSummary
from .summary import RecentSample as RecentSample, interval_of as interval_of
