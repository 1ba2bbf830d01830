from . import budgets as budgets
from .provider import (
    FairBatches as FairBatches,
    HttpTaskProvider as HttpTaskProvider,
    LocalTaskProvider as LocalTaskProvider,
    TaskProvider as TaskProvider,
)
from .sampler import (
    NEW_PAIRS_PER_S as NEW_PAIRS_PER_S,
    interval_s as interval_s,
    Health as Health,
    Demand as Demand,
    ModelSampler as ModelSampler,
    PairHistory as PairHistory,
    SamplingRules as SamplingRules,
)
from .capacity import (
    CapacityCheck as CapacityCheck,
    CapacityLimit as CapacityLimit,
    capacity_check as capacity_check,
)
from .precision import Known as Known, PrecisionStop as PrecisionStop
from .price_table import read_prices as read_prices
from .ranking import (
    NEXT_SAMPLES as NEXT_SAMPLES,
    RankingReport as RankingReport,
    RankingStop as RankingStop,
    ranking_shares as ranking_shares,
)
from .roster import (
    BASELINE_ROSTER as BASELINE_ROSTER,
    BaselineRoster as BaselineRoster,
    FileRoster as FileRoster,
    HttpRoster as HttpRoster,
    Roster as Roster,
    RosterAtHand as RosterAtHand,
    RosterSource as RosterSource,
    StaticRoster as StaticRoster,
    mapped_roster as mapped_roster,
    roster_source as roster_source,
)
from .roster_entries import LaunchForm as LaunchForm, base_url_problem as base_url_problem
from .window import SlidingCount as SlidingCount
