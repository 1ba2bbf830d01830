"""What the ledger answers, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.placement.pool import Pool
from headgate.placement.request import Stage


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Numbers that the ledger goes by.

    Attributes:
        ageing_per_s: priority that waiting adds inside a band; a whole band in an hour by default.
        backfill_depth: how many requests that cannot be placed are looked at in one pass before the rest waits.
        driver_lease_s: a driver that was not heard of for so long is lost.
        keep_work_of_lost_drivers: whether its work goes on; otherwise it is stopped and withdrawn.
        heal_grace_s: how long a group with a dead node is left alone in case the node comes back.
        max_losses: a request whose process or node died so often is not started again.
        lost_retry_s: pause after the second such death, doubled for each further one; the first has none.
        idle_group_s: a dynamic group that nobody used for so long is removed.
        create_retry_s: pause after a group could not be made.
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
    """A pool of that name is open.

    Attributes:
        before: the pool as it was open already, and stays; None where it was not.
        differences: fields in which that one is another than was asked for.
    """

    before: Pool | None = None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A step of the ladder that could not place a request.

    Attributes:
        step: name of the step.
        says: a sentence for people.
        until: monotonic seconds when the step may do by itself; None where only a change helps.
    """

    step: str
    says: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A place for a request.

    Attributes:
        step: the step of the ladder that found it.
        group_id: the group to take; empty where one is to be made.
        nodes: where the new group is to lie.
        evict: groups that must be removed first: idle ones, and those of victims whose room is needed.
        victims: request ids that must be stopped first, and by which rule.
        on_loan: it is a reserved group that the request has no right to.
        lost_work_s: what stopping the victims loses, in seconds of the whole cluster.
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
    """What holds a request now.

    Attributes:
        stage: where it stands.
        says: a sentence for people.
        until: monotonic seconds when that ends by itself; None where it is not known.
        ahead: how many requests stand before it in line.
        rejected: the steps that could not place it, in order.
    """

    stage: Stage
    says: str
    until: float | None = None
    ahead: int = 0
    rejected: tuple[Rejected, ...] = ()


@dataclass(slots=True)
class Changes:
    """Names of what changed since the last call; a name that the ledger no longer knows was deleted."""

    pools: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    requests: set[str] = field(default_factory=set)
    durations: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.pools or self.groups or self.requests or self.durations)
