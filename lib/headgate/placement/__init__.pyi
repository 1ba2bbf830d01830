from . import (
    checks as checks,
    cluster as cluster,
    commands as commands,
    eligibility as eligibility,
    errors as errors,
    metric_names as metric_names,
    node as node,
    occupancy as occupancy,
    outcomes as outcomes,
    pool as pool,
    request as request,
    roles as roles,
    rules as rules,
    scaling as scaling,
    schedulemesh as schedulemesh,
    service as service,
)
from .amounts import Amounts as Amounts, amounts as amounts
from .checks import (
    PoolSpec as PoolSpec,
    RequestSpec as RequestSpec,
    checked_pool as checked_pool,
    checked_request as checked_request,
)
from .cluster.client import Placement as Placement, connect as connect
from .cluster.leases import PlacementLease as PlacementLease
from .cluster.placed import PlacedWork as PlacedWork
from .cluster.pools import PlacementPool as PlacementPool
from .cluster.tuning import LocalCluster as LocalCluster
from .cluster.working import placement_context as placement_context
from .ledger import PlacementLedger as PlacementLedger
from .outcomes import LedgerSettings as LedgerSettings, Why as Why
from .pool import GroupShape as GroupShape, Pool as Pool
from .request import PlacementRequest as PlacementRequest
from .rules import (
    Aggressiveness as Aggressiveness,
    PreemptionRules as PreemptionRules,
    checked_rules as checked_rules,
    rules_from as rules_from,
)
from .usage import PoolUsage as PoolUsage
