"""Traces through the ledger and its rivals in virtual time: exact, and the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.placement.replay import Comparison, Measures, cluster_of, compared, generated
from headgate.placement.rules import checked_rules

POLICIES: Final = ("headgate", "ray", "fifo", "single-victim-requeued", "clairvoyant")

_LABELS: Final = {"role": {"train": ["reward", "rollout"], "reward": ["rollout"]}}


@dataclass(frozen=True, slots=True)
class Replayed:
    """One mix under all policies."""

    mix: str
    comparison: Comparison

    def measures(self, policy: str) -> Measures:
        """Return the figures of one of `POLICIES`."""
        return self.comparison.measures[POLICIES.index(policy)]


def replayed(mix: str, *, hours: float, seed: int, tell: Callable[[str], None]) -> Replayed:
    """Replay a generated mix of 32 GPUs on 4 nodes at a load of 0.9."""
    cluster = cluster_of()
    trace = generated(mix, cluster, hours=hours, seed=seed)
    rules = checked_rules(label_rules=_LABELS)
    return Replayed(mix, compared(trace, cluster, rules, POLICIES, tell=tell))
