"""Job traces replayed through the placement ledger in virtual time, beside other policies and bounds."""

from headgate_replay.errors import InvalidTraceError, OvercommittedError
from headgate_replay.placement.bounds import least_waiting_s
from headgate_replay.placement.comparison import POLICIES, Comparison, Measures, Waiting, compared, measured, waited_s
from headgate_replay.placement.engine import Decision, Outcome
from headgate_replay.placement.figure import timeline_svg
from headgate_replay.placement.jobs import (
    HIGH_FROM,
    MIXES,
    Cluster,
    Job,
    Latencies,
    Trace,
    cluster_of,
    generated,
    trace_of,
)
from headgate_replay.placement.ledger_driver import through_ledger
from headgate_replay.placement.traces import read_json_lines, read_openb

__all__ = [
    "HIGH_FROM",
    "MIXES",
    "POLICIES",
    "Cluster",
    "Comparison",
    "Decision",
    "InvalidTraceError",
    "Job",
    "Latencies",
    "Measures",
    "Outcome",
    "OvercommittedError",
    "Trace",
    "Waiting",
    "cluster_of",
    "compared",
    "generated",
    "least_waiting_s",
    "measured",
    "read_json_lines",
    "read_openb",
    "through_ledger",
    "timeline_svg",
    "trace_of",
    "waited_s",
]
