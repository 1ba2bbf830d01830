"""Job traces replayed through the placement ledger in virtual time, beside rivals and bounds."""

from headgate.placement.replay.bound import least_waiting_s
from headgate.placement.replay.cluster import Cluster, Latencies, check_fits, cluster_of
from headgate.placement.replay.comparing import POLICIES, Comparison, compared
from headgate.placement.replay.errors import InvalidTraceError, OvercommittedError
from headgate.placement.replay.holdings import Block, blocks, drawn_resource, held_by_kind
from headgate.placement.replay.job import HIGH_FROM, Job, Trace, trace_of
from headgate.placement.replay.json_lines import JobLine, read_json_lines
from headgate.placement.replay.ledger_driver import through_ledger
from headgate.placement.replay.measures import Measures, Waiting, measured, waited_s
from headgate.placement.replay.mixes import MIXES, generated
from headgate.placement.replay.openb import PRIORITY_OF_QOS, read_openb
from headgate.placement.replay.outcome import Decision, Outcome

__all__ = [
    "HIGH_FROM",
    "MIXES",
    "POLICIES",
    "PRIORITY_OF_QOS",
    "Block",
    "Cluster",
    "Comparison",
    "Decision",
    "InvalidTraceError",
    "Job",
    "JobLine",
    "Latencies",
    "Measures",
    "Outcome",
    "OvercommittedError",
    "Trace",
    "Waiting",
    "blocks",
    "check_fits",
    "cluster_of",
    "compared",
    "drawn_resource",
    "generated",
    "held_by_kind",
    "least_waiting_s",
    "measured",
    "read_json_lines",
    "read_openb",
    "through_ledger",
    "trace_of",
    "waited_s",
]
