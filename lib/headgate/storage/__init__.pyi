from .batches import StoredBatch as StoredBatch
from .compaction import Compacted as Compacted, CompactionPolicy as CompactionPolicy
from .deletion import Forgotten as Forgotten, Swept as Swept
from .exchange.affine_results import Miner as Miner
from .exchange.exports import export_samples as export_samples
from .exchange.formats import (
    EXPORT_FORMATS as EXPORT_FORMATS,
    IMPORT_FORMATS as IMPORT_FORMATS,
    ExportFormat as ExportFormat,
    ImportFormat as ImportFormat,
)
from .exchange.imports import Imported as Imported, import_samples as import_samples
from .selection import Chosen as Chosen, require_named as require_named
from .journal import Journal as Journal, JournalHistory as JournalHistory, TaskState as TaskState
from .manifest import Problem as Problem, Visible as Visible
from .benchmark import StoreFigures as StoreFigures, example_samples as example_samples
from .benchmark import measure_store as measure_store
from .pairs import AlreadyTaken as AlreadyTaken, Opening as Opening, PairRecord as PairRecord
from .query import (
    QUERY_COLUMNS as QUERY_COLUMNS,
    QueryResult as QueryResult,
    Scan as Scan,
    Verification as Verification,
)
from .recovery import Repaired as Repaired, repair as repair
from .schema import (
    COLUMNS as COLUMNS,
    Validated as Validated,
    frame_of as frame_of,
    sample_schema as sample_schema,
    validated as validated,
)
from .sink import BatchStore as BatchStore, JournalThread as JournalThread, Sink as Sink, SinkRules as SinkRules
from .spending import SpendingAnswer as SpendingAnswer, SpendingNeed as SpendingNeed, SpendingReport as SpendingReport
from .spool import SpooledBatch as SpooledBatch, SpoolState as SpoolState
from .store import (
    LEASE_S as LEASE_S,
    Probe as Probe,
    SampleStore as SampleStore,
    StoreLocation as StoreLocation,
    open_store as open_store,
    sample_store as sample_store,
)
from .summary import (
    History as History,
    Interval as Interval,
    PairHistory as PairHistory,
    PairSummary as PairSummary,
    Summary as Summary,
)
