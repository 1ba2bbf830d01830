"""Loads replayed through the elastic pool in virtual time, beside rivals and bounds."""

from headgate.elastic.replay.bound import fewest_fixed, least_worker_s, least_worker_s_but
from headgate.elastic.replay.comparing import COLUMNS, USUAL, Comparison, compared
from headgate.elastic.replay.contenders import CONTENDERS, OURS, Contender, Terms, contender, terms_of
from headgate.elastic.replay.driver import played
from headgate.elastic.replay.errors import InvalidLoadError, ReplayFailedError
from headgate.elastic.replay.frontier import Bound, Frontier, Point, bounds, frontier
from headgate.elastic.replay.load import Call, Load, Site, load_of
from headgate.elastic.replay.measures import Measures, asked_course, awake_course, measured, wait_course
from headgate.elastic.replay.outcome import Outcome, Stay
from headgate.elastic.replay.probes import drained_with_a_backlog, operations_when_steady, starts_until_served
from headgate.elastic.replay.ramp import RAMP, Phase, backlog, ramp, steady, step
from headgate.elastic.replay.service_times import Hardware, ServiceTimes, read_service_times
from headgate.elastic.replay.sources import RAMP_NAME, named_load, roomy_site, sites_for, traced_load
from headgate.elastic.replay.traces import Trace, TracedRequest, read_trace, superposed

__all__ = [
    "COLUMNS",
    "CONTENDERS",
    "OURS",
    "RAMP",
    "RAMP_NAME",
    "USUAL",
    "Bound",
    "Call",
    "Comparison",
    "Contender",
    "Frontier",
    "Hardware",
    "InvalidLoadError",
    "Load",
    "Measures",
    "Outcome",
    "Phase",
    "Point",
    "ReplayFailedError",
    "ServiceTimes",
    "Site",
    "Stay",
    "Terms",
    "Trace",
    "TracedRequest",
    "asked_course",
    "awake_course",
    "backlog",
    "bounds",
    "compared",
    "contender",
    "drained_with_a_backlog",
    "fewest_fixed",
    "frontier",
    "least_worker_s",
    "least_worker_s_but",
    "load_of",
    "measured",
    "named_load",
    "operations_when_steady",
    "played",
    "ramp",
    "read_service_times",
    "read_trace",
    "roomy_site",
    "sites_for",
    "starts_until_served",
    "steady",
    "step",
    "superposed",
    "terms_of",
    "traced_load",
    "wait_course",
]
