"""Placement: GPU work with priorities on Ray placement groups, preempting when it must.

    from headgate.placement import amounts, connect

    with connect() as placement:
        pool = placement.pool("rlhf", quota=amounts(cpu=6, gpu=2))
        work = pool.submit(Training, resources=amounts(cpu=2, gpu=1), priority=9, labels={"role": "train"})
        print(work.result())

Names are loaded when they are first asked for: rules, traces and checks need no Ray, and what needs it says so where
it is missing. The parts are offered as modules, too: `replay` (traces in virtual time), `roles` (a small training),
`schedulemesh` (the front of an older system), `service` and `cluster` (the ledger at work), and those that hold the
values and rules which all of them share.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from headgate.core.errors import MissingExtraError

# At once and not when asked for: the function has the name of its module, which any import of that would put here.
from headgate.placement.amounts import Amounts, amounts

if TYPE_CHECKING:
    from headgate.placement.checks import PoolSpec, RequestSpec, checked_pool, checked_request
    from headgate.placement.cluster.client import Placement, connect
    from headgate.placement.cluster.leases import PlacementLease
    from headgate.placement.cluster.placed import PlacedWork
    from headgate.placement.cluster.pools import PlacementPool
    from headgate.placement.cluster.tuning import LocalCluster
    from headgate.placement.cluster.working import placement_context
    from headgate.placement.ledger import PlacementLedger
    from headgate.placement.outcomes import LedgerSettings, Why
    from headgate.placement.pool import GroupShape, Pool
    from headgate.placement.request import PlacementRequest
    from headgate.placement.rules import Aggressiveness, PreemptionRules, checked_rules, rules_from
    from headgate.placement.usage import PoolUsage

__all__ = [
    "Aggressiveness",
    "Amounts",
    "GroupShape",
    "LedgerSettings",
    "LocalCluster",
    "PlacedWork",
    "Placement",
    "PlacementLease",
    "PlacementLedger",
    "PlacementPool",
    "PlacementRequest",
    "Pool",
    "PoolSpec",
    "PoolUsage",
    "PreemptionRules",
    "RequestSpec",
    "Why",
    "amounts",
    "checked_pool",
    "checked_request",
    "checked_rules",
    "checks",
    "cluster",
    "connect",
    "errors",
    "metric_names",
    "node",
    "occupancy",
    "outcomes",
    "placement_context",
    "pool",
    "replay",
    "request",
    "roles",
    "rules",
    "rules_from",
    "scaling",
    "schedulemesh",
    "service",
]

_WHERE: Final = {
    "checks": ("PoolSpec", "RequestSpec", "checked_pool", "checked_request"),
    "cluster.client": ("Placement", "connect"),
    "cluster.leases": ("PlacementLease",),
    "cluster.placed": ("PlacedWork",),
    "cluster.pools": ("PlacementPool",),
    "cluster.tuning": ("LocalCluster",),
    "cluster.working": ("placement_context",),
    "ledger": ("PlacementLedger",),
    "outcomes": ("LedgerSettings", "Why"),
    "pool": ("GroupShape", "Pool"),
    "request": ("PlacementRequest",),
    "usage": ("PoolUsage",),
    "rules": ("Aggressiveness", "PreemptionRules", "checked_rules", "rules_from"),
}
_FILES: Final = {name: file for file, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name != "ray":
            raise
        raise MissingExtraError(f"headgate.placement.{name}", "ray") from missing
