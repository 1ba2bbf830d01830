from .bounds import least_waiting_s as least_waiting_s
from .comparison import (
    POLICIES as POLICIES,
    Comparison as Comparison,
    Measures as Measures,
    Waiting as Waiting,
    compared as compared,
    measured as measured,
    waited_s as waited_s,
)
from .engine import Decision as Decision, Outcome as Outcome, OvercommittedError as OvercommittedError
from .figure import timeline_svg as timeline_svg
from .heavy import HEAVY as HEAVY, by_work as by_work, heavy_tailed as heavy_tailed, understated as understated
from .jobs import (
    HIGH_FROM as HIGH_FROM,
    MIXES as MIXES,
    Cluster as Cluster,
    InvalidTraceError as InvalidTraceError,
    Job as Job,
    Latencies as Latencies,
    Trace as Trace,
    at_load as at_load,
    cluster_of as cluster_of,
    generated as generated,
    trace_of as trace_of,
    without_durations as without_durations,
)
from .ledger_driver import through_ledger as through_ledger
from .traces import read_json_lines as read_json_lines, read_openb as read_openb
