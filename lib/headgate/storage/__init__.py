"""Storage: the journal and its sink, the sample store, summaries, history and queries."""

from headgate.storage.compaction import Compacted, CompactionPolicy
from headgate.storage.interval import Interval
from headgate.storage.journal import (
    AlreadyTaken,
    Journal,
    JournalHistory,
    Opening,
    PairRecord,
    SpooledBatch,
    SpoolState,
)
from headgate.storage.journal_thread import JournalThread
from headgate.storage.location import StoreLocation
from headgate.storage.query import QUERY_COLUMNS, QueryResult
from headgate.storage.reading import Scan, Verification
from headgate.storage.sink import BatchStore, Sink, SinkRules
from headgate.storage.store import SampleStore, open_store
from headgate.storage.summary import History, PairHistory, PairSummary, Summary
from headgate.storage.visibility import Problem
from headgate.storage.writing import StoredBatch

__all__ = [
    "QUERY_COLUMNS",
    "AlreadyTaken",
    "BatchStore",
    "Compacted",
    "CompactionPolicy",
    "History",
    "Interval",
    "Journal",
    "JournalHistory",
    "JournalThread",
    "Opening",
    "PairHistory",
    "PairRecord",
    "PairSummary",
    "Problem",
    "QueryResult",
    "SampleStore",
    "Scan",
    "Sink",
    "SinkRules",
    "SpoolState",
    "SpooledBatch",
    "StoreLocation",
    "StoredBatch",
    "Summary",
    "Verification",
    "open_store",
]
