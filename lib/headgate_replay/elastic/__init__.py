"""Loads replayed through the elastic pool in virtual time, beside the rules of other systems and bounds."""

from headgate_replay.elastic.comparison import (
    COLUMNS,
    DEFINITIONS,
    USUAL,
    Comparison,
    compared,
    drained_with_a_backlog,
    frontier,
    operations_when_steady,
    starts_until_served,
)
from headgate_replay.elastic.contenders import CONTENDERS, OURS, contender, terms_of
from headgate_replay.elastic.driver import played
from headgate_replay.elastic.load import SLOTS, Call, Load, Site, backlog, load_of, ramp, steady, step
from headgate_replay.elastic.order import RAMP_NAME, ReplayOrder, roomy_site
from headgate_replay.elastic.outcome import Measures, asked_course, awake_course, measured
from headgate_replay.elastic.page import replay_figures, replay_page
from headgate_replay.elastic.traces import Hardware, traced_load
from headgate_replay.errors import InvalidLoadError, ReplayFailedError

__all__ = [
    "COLUMNS",
    "CONTENDERS",
    "DEFINITIONS",
    "OURS",
    "RAMP_NAME",
    "SLOTS",
    "USUAL",
    "Call",
    "Comparison",
    "Hardware",
    "InvalidLoadError",
    "Load",
    "Measures",
    "ReplayFailedError",
    "ReplayOrder",
    "Site",
    "asked_course",
    "awake_course",
    "backlog",
    "compared",
    "contender",
    "drained_with_a_backlog",
    "frontier",
    "load_of",
    "measured",
    "operations_when_steady",
    "played",
    "ramp",
    "replay_figures",
    "replay_page",
    "roomy_site",
    "starts_until_served",
    "steady",
    "step",
    "terms_of",
    "traced_load",
]
