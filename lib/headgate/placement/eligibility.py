"""Whether one running request may be stopped for a waiting one, and what that would cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Final, Literal

from headgate.placement.amounts import Amounts
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.pool import Pool
from headgate.placement.request import PlacementRequest
from headgate.placement.rules import PreemptionRules

Reason = Literal["label_based_preemption", "same_pool_preemption", "cross_pool_preemption", "reclaimed"]
"""Why work was preempted; the first three are ScheduleMesh's words."""

_HOLDING: Final = frozenset({Stage.PLACING, Stage.RUNNING})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A preemption that a rule forbids.

    Attributes:
        rule: short name of the rule.
        says: a sentence for people.
        until: monotonic seconds when the rule holds no longer by itself; None where that is not known.
    """

    rule: str
    says: str
    until: float | None = None


def refusal(
    preemptor: PlacementRequest,
    victim: Occupancy,
    victim_pool: Pool,
    rules: PreemptionRules,
    now: float,
    *,
    reclaim: bool = False,
) -> Refusal | None:
    """Return why `victim` may not be stopped for `preemptor`, or None if it may.

    Args:
        preemptor: what waits.
        victim: what runs.
        victim_pool: the pool of the victim.
        rules: the rules.
        now: monotonic seconds.
        reclaim: the victim runs in a reserved group on loan, and the preemptor is entitled to it: then it may be
            stopped unless it already stops.
    """
    held = _not_stoppable(victim, _HOLDING if reclaim else frozenset({Stage.RUNNING}))
    if held or reclaim:
        return held
    return (
        _spared(victim, rules, now)
        or _other_pool_closed(preemptor, victim, victim_pool, rules)
        or _too_close(preemptor, victim, rules)
    )


def reason(
    preemptor: PlacementRequest, victim: PlacementRequest, rules: PreemptionRules, *, reclaim: bool = False
) -> Reason:
    """Return by which rule `victim` is stopped for `preemptor`."""
    if reclaim:
        return "reclaimed"
    if rules.outranks(preemptor.labels, victim.labels):
        return "label_based_preemption"
    return "same_pool_preemption" if preemptor.pool == victim.pool else "cross_pool_preemption"


def lost_work(victim: Occupancy, cluster: Amounts, now: float) -> float:
    """Return what stopping work loses: seconds of the whole cluster, counted by its dominant share.

    Lost is what was done since the last checkpoint, or since the start of work that makes none, and a new start.
    """
    request = victim.request
    undone = 0.0
    if victim.started_at is not None:
        since = max(victim.saved_at, victim.started_at) if request.checkpoints else victim.started_at
        undone = max(0.0, now - since)
    return request.size.share_of(cluster) * (undone + request.restart_s)


def promoted_band(occupancy: Occupancy, rules: PreemptionRules) -> int:
    """Return the band of a request: the whole part of its priority, one more once it was stopped too often."""
    return floor(occupancy.request.priority) + (0 < rules.max_preemptions <= occupancy.preemptions)


def _not_stoppable(victim: Occupancy, stoppable: frozenset[Stage]) -> Refusal | None:
    if victim.stage is Stage.STOPPING:
        return Refusal("already_stopping", f"{victim.request_id} is being stopped already")
    if victim.stage not in stoppable:
        return Refusal("not_running", f"{victim.request_id} does not run: it is {victim.stage}")
    return None


def _spared(victim: Occupancy, rules: PreemptionRules, now: float) -> Refusal | None:
    """Return why the work may not be stopped for anybody."""
    request = victim.request
    if not request.preemptible:
        return Refusal("not_preemptible", f"{victim.request_id} was submitted as not preemptible")
    if victim.preemptions >= rules.max_preemptions:
        return Refusal(
            "preempted_too_often",
            f"{victim.request_id} was preempted {victim.preemptions} times; "
            f"max_preemptions {rules.max_preemptions} allows no more",
        )
    started_at = now if victim.started_at is None else victim.started_at
    min_runtime_s = rules.min_runtime_s if request.min_runtime_s is None else request.min_runtime_s
    if now < (until := started_at + min_runtime_s):
        return Refusal(
            "too_young",
            f"{victim.request_id} has run {now - started_at:.1f} s, and min_runtime_s is {min_runtime_s:g}",
            until,
        )
    ends_at = started_at + request.estimated_duration_s
    if now < ends_at < now + rules.patience_s:
        return Refusal("ends_soon", f"{victim.request_id} should end by itself in {ends_at - now:.1f} s", ends_at)
    return None


def _other_pool_closed(
    preemptor: PlacementRequest, victim: Occupancy, victim_pool: Pool, rules: PreemptionRules
) -> Refusal | None:
    if victim.request.pool == preemptor.pool:
        return None
    if not rules.cross_pool:
        return Refusal("other_pool", f"{victim.request_id} is in pool {victim_pool.name}, and cross_pool is off")
    if victim_pool.protected:
        return Refusal("protected_pool", f"{victim.request_id} is in pool {victim_pool.name}, which is protected")
    return None


def _too_close(preemptor: PlacementRequest, victim: Occupancy, rules: PreemptionRules) -> Refusal | None:
    """Return why labels and priorities do not allow it, compared in whole thousandths."""
    mine, theirs = preemptor.priority, victim.request.priority
    ahead = _milli(mine) - _milli(theirs)
    if rules.outranks(victim.request.labels, preemptor.labels):
        return Refusal("outranked_by_label", f"{victim.request_id} outranks {preemptor.request_id} by its labels")
    if rules.outranks(preemptor.labels, victim.request.labels):
        # A whole chain of label preemptions must climb less than one by priority falls, or it could close a cycle.
        chain_bound = (_milli(rules.same_pool_threshold) - 1) // rules.order.longest_chain
        most = min(_milli(rules.label_threshold), chain_bound)
        if -ahead <= most:
            return None
        return Refusal(
            "label_difference",
            f"{victim.request_id} has priority {theirs:g}; a label rule lets {mine:g} preempt {most / 1_000:g} above",
        )
    same_pool = preemptor.pool == victim.request.pool
    name = "same_pool_threshold" if same_pool else "cross_pool_threshold"
    threshold: float = getattr(rules, name)
    if ahead >= _milli(threshold):
        return None
    return Refusal(
        "priority_difference",
        f"{victim.request_id} has priority {theirs:g}; {mine:g} is not {name} {threshold:g} above it",
    )


def _milli(number: float) -> int:
    return round(number * 1_000)
