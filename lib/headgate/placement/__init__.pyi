from . import (
    cluster as cluster,
    errors as errors,
    outbox as outbox,
    outcomes as outcomes,
    pool as pool,
    request as request,
    roles as roles,
    rules as rules,
    schedulemesh as schedulemesh,
    victims as victims,
)
from .amounts import Amounts as Amounts, amounts as amounts
from .checks import (
    MOST_BUNDLES as MOST_BUNDLES,
    PoolSpec as PoolSpec,
    checked_pool as checked_pool,
    checked_request as checked_request,
    pool_spec as pool_spec,
    request_spec as request_spec,
)
from .cluster.client import Placement as Placement, connect as connect
from .cluster.command import CommandWork as CommandWork
from .cluster.connection import Found as Found, connect_ray as connect_ray, node_address as node_address
from .cluster.connection import take_signals_back as take_signals_back
from .cluster.link import has_ledger as has_ledger
from .cluster.pools import PlacementLease as PlacementLease, PlacementPool as PlacementPool
from .cluster.work import PlacedWork as PlacedWork
from .cluster.tuning import LocalCluster as LocalCluster
from .errors import (
    ClusterUnreachableError as ClusterUnreachableError,
    InvalidPlacementError as InvalidPlacementError,
    LedgerUnreachableError as LedgerUnreachableError,
    PlacementLostError as PlacementLostError,
    WorkFailedError as WorkFailedError,
)
from .ledger import PlacementLedger as PlacementLedger
from .outcomes import LedgerSettings as LedgerSettings
from .pool import Group as Group, GroupShape as GroupShape
from .request import Occupancy as Occupancy, Strategy as Strategy
from .rules import PreemptionRules as PreemptionRules, checked_rules as checked_rules, rules_from as rules_from
from .scaling import homeless as homeless
from .service.journal import read_journal as read_journal
from .service.protocol import WorkView as WorkView
