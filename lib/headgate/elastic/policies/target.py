"""Workers in proportion to the load: up at once by a short window, down by a long one; and a policy for due work."""

from __future__ import annotations

from collections.abc import Callable

from headgate.elastic.demand import Demand, Desired, Policy, whole
from headgate.elastic.policies.history import Highest, Total
from headgate.elastic.settings import ElasticConfig


class Target:
    """Keeps as many workers awake as make the load `target_load` of their capacity.

    Up: by the mean load of the panic window, and while a request waits by the present load. Down: to the maximum
    wanted within the stable window. This is Knative's autoscaler without its modes: it counts starting workers as
    capacity, does not wait for a second window to agree, and cannot leave a panic for too low a number.
    """

    def __init__(self, config: ElasticConfig) -> None:
        self._target_load = config.target_load
        self._panic_window_s = config.panic_window
        self._area = Total(config.panic_window)
        self._most = Highest(config.stable_window)

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers should be awake."""
        self._area.note(demand.area, now)
        load = self._area.rate(self._panic_window_s)
        if demand.waiting or not self._area.age_s:
            load = max(load, demand.worth)
        wanted = whole(load / self._target_load)
        if self._most.is_empty:  # the earlier load is not known, so workers that are awake stay so for a window
            self._most.note(demand.awake, now)
        most = int(self._most.note(wanted, now))
        kept = min(demand.awake, max(most, whole(demand.worth)))  # with fewer, running requests would be moved
        needed = f"{wanted or 'no'} worker{'s' * (wanted != 1)} needed"
        return Desired(max(wanted, kept), f"load {load:.2f}; {needed} at the {self._target_load:.0%} target")

    def validate(self) -> None:
        """Assert the invariants of its state."""
        self._area.validate()
        self._most.validate()


class ForDue:
    """Another policy, with at least as many workers awake as the due requests will fill.

    While none are due, no further worker is woken, and workers that still wait for a lease stop waiting. If other pools
    wait for their leases, all workers are put to sleep at once: staying at an empty queue while another is not empty
    never shortens a wait (Liu, Nain and Towsley, On optimal polling policies, 1992).

    Args:
        policy: the policy for actual requests.
        due: returns how many requests are expected at once.
        others_wait: returns which waiting pools the workers give way to, as a reason; empty if there are none.
    """

    def __init__(self, policy: Policy, due: Callable[[], int], others_wait: Callable[[], str]) -> None:
        self._policy = policy
        self._due = due
        self._others_wait = others_wait

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers should be awake."""
        advised = self._policy.decide(demand, now)
        due = self._due()
        if not due and (why := self._others_wait()):
            return Desired(0, why, at_once=True)
        if not due:
            return Desired(min(advised.workers, demand.active), advised.because)
        needed = min(whole(due / demand.slots), demand.highest)
        return advised if needed <= advised.workers else Desired(needed, f"{due} samples are due")

    def validate(self) -> None:
        """Assert the invariants of its state."""
        self._policy.validate()
