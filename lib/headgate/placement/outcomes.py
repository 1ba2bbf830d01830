"""The ledger's answers, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.placement.pool import Pool
from headgate.placement.request import Stage


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Settings of the ledger.

    Attributes:
        ageing_per_s: priority gained per second of waiting, within a band; by default a whole band in an hour.
        backfill_depth: how many requests that cannot be placed are tried in one pass before the rest waits.
        driver_lease_s: a driver without heartbeats for this long counts as lost.
        keep_work_of_lost_drivers: whether the work of a lost driver continues; otherwise it is stopped and withdrawn.
            Its leases are withdrawn in either case.
        heal_grace_s: how long a group with a dead node is left alone in case the node comes back.
        max_losses: how often the process or node of a request may die and the request is still started again.
        lost_retry_s: pause after the second such death, doubled for each further one; none after the first.
        idle_group_s: a dynamic group that was unused for this long is removed.
        create_retry_s: pause after a group could not be created.
    """

    ageing_per_s: float = 1 / 3600
    backfill_depth: int = 100
    driver_lease_s: float = 15.0
    keep_work_of_lost_drivers: bool = False
    heal_grace_s: float = 5.0
    max_losses: int = 3
    lost_retry_s: float = 1.0
    idle_group_s: float = 60.0
    create_retry_s: float = 1.0


@dataclass(frozen=True, slots=True)
class PoolOpened:
    """Answer to opening a pool.

    Attributes:
        before: the pool that was already open under this name, and stays as it is; None if there was none.
        differences: fields in which that pool differs from the one asked for.
    """

    before: Pool | None = None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A step of the ladder that could not place a request.

    Attributes:
        step: name of the step.
        says: the reason, as a sentence.
        until: monotonic seconds when the step may succeed without any other change; None if only a change helps.
    """

    step: str
    says: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A place for a request.

    Attributes:
        step: the step of the ladder that found it.
        group_id: the group to take; empty if a new one must be created.
        nodes: the nodes for the bundles of the new group.
        evict: groups that must be removed first: idle ones, and those of victims whose room is needed.
        victims: ids of the requests that must be stopped first -> the rule that allows it.
        on_loan: whether it is a reserved group to which the request is not entitled.
        lost_work_s: work lost by stopping the victims, in seconds of the whole cluster.
    """

    step: str
    group_id: str = ""
    nodes: tuple[str, ...] = ()
    evict: tuple[str, ...] = ()
    victims: Mapping[str, str] = field(default_factory=dict)
    on_loan: bool = False
    lost_work_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Why:
    """What a request is waiting for now.

    Attributes:
        stage: its stage.
        says: the reason, as a sentence.
        until: monotonic seconds when the reason ends by itself; None if unknown.
        ahead: how many requests are ahead of it in the queue.
        rejected: the steps that could not place it, in order.
    """

    stage: Stage
    says: str
    until: float | None = None
    ahead: int = 0
    rejected: tuple[Rejected, ...] = ()


@dataclass(slots=True)
class Changes:
    """Names of what changed since the last call; a name that the ledger no longer has was deleted."""

    pools: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    requests: set[str] = field(default_factory=set)
    durations: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.pools or self.groups or self.requests or self.durations)
