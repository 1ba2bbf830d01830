"""Storage: the journal and its sink, the sample store, summaries, history and queries."""

from headgate.storage.compaction import Compacted, CompactionPolicy
from headgate.storage.exchange import (
    EXPORT_FORMATS,
    IMPORT_FORMATS,
    Chosen,
    ExportFormat,
    Imported,
    ImportFormat,
    Miner,
    export_samples,
    import_samples,
    require_named,
)
from headgate.storage.forgetting import Forgetting, Forgotten, Swept
from headgate.storage.journal import Journal
from headgate.storage.journal_records import (
    AlreadyTaken,
    JournalHistory,
    Opening,
    PairRecord,
    SpooledBatch,
    SpoolState,
    TaskState,
)
from headgate.storage.journal_thread import JournalThread
from headgate.storage.leases import LEASE_S
from headgate.storage.measure import StoreFigures, example_samples
from headgate.storage.measure import measured as measure_store
from headgate.storage.query import QUERY_COLUMNS, QueryResult, Scan, Selection, Verification
from headgate.storage.repair import Repaired, repair
from headgate.storage.schema import COLUMNS, Validated, frame_of, sample_schema, validated
from headgate.storage.sink import BatchStore, Sink, SinkRules
from headgate.storage.spending import SpendingAnswer, SpendingNeed, SpendingReport
from headgate.storage.store import Probe, SampleStore, StoreLocation, open_store, sample_store
from headgate.storage.summary import History, Interval, PairHistory, PairSummary, Summary
from headgate.storage.visibility import Problem, Visible
from headgate.storage.writing import StoredBatch

__all__ = [
    "COLUMNS",
    "EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "LEASE_S",
    "QUERY_COLUMNS",
    "AlreadyTaken",
    "BatchStore",
    "Chosen",
    "Compacted",
    "CompactionPolicy",
    "ExportFormat",
    "Forgetting",
    "Forgotten",
    "History",
    "ImportFormat",
    "Imported",
    "Interval",
    "Journal",
    "JournalHistory",
    "JournalThread",
    "Miner",
    "Opening",
    "PairHistory",
    "PairRecord",
    "PairSummary",
    "Probe",
    "Problem",
    "QueryResult",
    "Repaired",
    "SampleStore",
    "Scan",
    "Selection",
    "Sink",
    "SinkRules",
    "SpendingAnswer",
    "SpendingNeed",
    "SpendingReport",
    "SpoolState",
    "SpooledBatch",
    "StoreFigures",
    "StoreLocation",
    "StoredBatch",
    "Summary",
    "Swept",
    "TaskState",
    "Validated",
    "Verification",
    "Visible",
    "example_samples",
    "export_samples",
    "frame_of",
    "import_samples",
    "measure_store",
    "open_store",
    "repair",
    "require_named",
    "sample_schema",
    "sample_store",
    "validated",
]
