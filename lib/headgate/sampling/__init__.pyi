from . import budgets as budgets
from .batches import FairBatches as FairBatches
from .cadence import (
    GOLDEN as GOLDEN,
    NEW_PAIRS_PER_S as NEW_PAIRS_PER_S,
    Cadence as Cadence,
    interval_s as interval_s,
    phase_s as phase_s,
)
from .capacity import CapacityCheck as CapacityCheck, CapacityLimit as CapacityLimit, capacity_check as capacity_check
from .error_pause import ErrorPause as ErrorPause, Health as Health
from .precision import Known as Known, PrecisionStop as PrecisionStop
from .provider import (
    HttpTaskProvider as HttpTaskProvider,
    LocalTaskProvider as LocalTaskProvider,
    TaskProvider as TaskProvider,
    TaskProviderError as TaskProviderError,
)
from .roster import (
    BASELINE_ROSTER as BASELINE_ROSTER,
    BaselineRoster as BaselineRoster,
    FileRoster as FileRoster,
    HttpRoster as HttpRoster,
    OpenAIRoster as OpenAIRoster,
    Roster as Roster,
    RosterSource as RosterSource,
    StaticRoster as StaticRoster,
    mapped_roster as mapped_roster,
    roster_source as roster_source,
)
from .sampler import (
    Demand as Demand,
    ModelSampler as ModelSampler,
    PairHistory as PairHistory,
    SamplingRules as SamplingRules,
)
from .timers import TimerHeap as TimerHeap
from .window import SlidingCount as SlidingCount
