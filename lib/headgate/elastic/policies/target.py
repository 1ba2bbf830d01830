"""Workers in proportion to the load: up by a short window at once, down by a long one; and for work that is due."""

from __future__ import annotations

from collections.abc import Callable

from headgate.elastic.demand import Demand, Desired, Policy, whole
from headgate.elastic.policies.history import Highest, Total
from headgate.elastic.settings import ElasticConfig


class Target:
    """As many workers as make the load `target_load` of their capacity.

    Up: by the mean load of the panic window, and at once by the load of the moment while a request waits. Down: to the
    most that was asked for within the stable window. Knative's autoscaler without its modes: it counts what starts as
    capacity, does not wait for a second window to agree, and cannot leave a panic for a number that is too low.
    """

    def __init__(self, config: ElasticConfig) -> None:
        self._target_load = config.target_load
        self._panic_window_s = config.panic_window
        self._area = Total(config.panic_window)
        self._most = Highest(config.stable_window)

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers there should be."""
        self._area.note(demand.area, now)
        load = self._area.rate(self._panic_window_s)
        if demand.waiting or not self._area.age_s:
            load = max(load, demand.worth)
        wanted = whole(load / self._target_load)
        if self._most.is_empty:  # what came before is not known, so that those that are there stay for a window
            self._most.note(demand.awake, now)
        most = int(self._most.note(wanted, now))
        kept = min(demand.awake, max(most, whole(demand.worth)))  # what runs would lose its place with fewer
        needed = f"{wanted or 'no'} worker{'s' * (wanted != 1)} needed"
        return Desired(max(wanted, kept), f"load {load:.2f}; {needed} at the {self._target_load:.0%} target")

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        self._area.validate()
        self._most.validate()


class ForDue:
    """Another policy, with at least as many workers as what is due will fill.

    While nothing is due no further one is woken, and what still stands in line leaves it. All leave at once where
    others stand in line for their places: to wait beside an empty queue while another is not empty never shortens a
    wait (Liu, Nain and Towsley, On optimal polling policies, 1992).

    Args:
        policy: goes by requests.
        due: says how many requests are expected at once.
        others_wait: says why the workers leave to somebody who stands in line for what they hold; empty if nobody does.
    """

    def __init__(self, policy: Policy, due: Callable[[], int], others_wait: Callable[[], str]) -> None:
        self._policy = policy
        self._due = due
        self._others_wait = others_wait

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers there should be."""
        advised = self._policy.decide(demand, now)
        due = self._due()
        if not due and (why := self._others_wait()):
            return Desired(0, why, at_once=True)
        if not due:
            return Desired(min(advised.workers, demand.active), advised.because)
        needed = min(whole(due / demand.slots), demand.highest)
        return advised if needed <= advised.workers else Desired(needed, f"{due} samples are due")

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        self._policy.validate()
