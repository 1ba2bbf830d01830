"""Sampling: rates, roster, samplers and history turn time into demand."""

from headgate.sampling import budgets
from headgate.sampling.capacity import CapacityCheck, CapacityLimit, capacity_check
from headgate.sampling.precision import Known, PrecisionStop
from headgate.sampling.provider import FairBatches, HttpTaskProvider, LocalTaskProvider, TaskProvider, TaskProviderError
from headgate.sampling.roster import (
    BASELINE_ROSTER,
    BaselineRoster,
    FileRoster,
    HttpRoster,
    OpenAIRoster,
    Roster,
    RosterSource,
    StaticRoster,
    roster_source,
)
from headgate.sampling.sampler import (
    GOLDEN,
    NEW_PAIRS_PER_S,
    Cadence,
    Demand,
    ErrorPause,
    Health,
    ModelSampler,
    PairHistory,
    SamplingRules,
    interval_s,
    phase_s,
)
from headgate.sampling.window import SlidingCount, TimerHeap

__all__ = [
    "BASELINE_ROSTER",
    "GOLDEN",
    "NEW_PAIRS_PER_S",
    "BaselineRoster",
    "Cadence",
    "CapacityCheck",
    "CapacityLimit",
    "Demand",
    "ErrorPause",
    "FairBatches",
    "FileRoster",
    "Health",
    "HttpRoster",
    "HttpTaskProvider",
    "Known",
    "LocalTaskProvider",
    "ModelSampler",
    "OpenAIRoster",
    "PairHistory",
    "PrecisionStop",
    "Roster",
    "RosterSource",
    "SamplingRules",
    "SlidingCount",
    "StaticRoster",
    "TaskProvider",
    "TaskProviderError",
    "TimerHeap",
    "budgets",
    "capacity_check",
    "interval_s",
    "phase_s",
    "roster_source",
]
