"""A load: requests in order of arrival, and how fast the engines are that answer them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.elastic.replay.errors import InvalidLoadError


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a load.

    Attributes:
        arrived_s: seconds since the load began.
        first_s: seconds from being given to a worker until its answer begins.
        steps: what its answer takes from there: tokens, or seconds where the load's `step_s` is 1.
        tokens: that the pool is told it takes.
    """

    arrived_s: float
    first_s: float
    steps: float
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """Calls, and the workers that they are meant for.

    Attributes:
        name: what tables call it.
        calls: sorted by `arrived_s`.
        slots: requests that a worker answers at once.
        step_s: seconds of one step while so many answers are under way on a worker, for 1, 2, … `slots` of them.
        window_s: its length; nothing arrives after.
        notes: what was assumed to make it, in sentences; shown with every result.
    """

    name: str
    calls: tuple[Call, ...]
    slots: int
    step_s: tuple[float, ...]
    window_s: float
    notes: tuple[str, ...] = ()

    @property
    def work_s(self) -> float:
        """Worker-seconds that no way of serving it can do without: every worker full, at the batch that is best."""
        steps = sum(call.steps for call in self.calls)
        first_s = sum(call.first_s for call in self.calls)
        best = min(step_s / batch for batch, step_s in enumerate(self.step_s, start=1))
        return first_s / self.slots + steps * best

    def alone_s(self, call: Call) -> float:
        """Return how long a call takes at least: on a worker at the batch that is fastest for it."""
        return call.first_s + call.steps * min(self.step_s)

    def crowded_s(self, call: Call) -> float:
        """Return how long a call takes on a full worker."""
        return call.first_s + call.steps * self.step_s[-1]


def load_of(
    name: str,
    calls: Iterable[Call],
    *,
    slots: int,
    step_s: Sequence[float] | None = None,
    window_s: float | None = None,
    notes: Sequence[str] = (),
) -> Load:
    """Return a load of calls in any order.

    Args:
        name: what tables call it.
        calls: see `Call`.
        slots: requests that a worker answers at once.
        step_s: see `Load`; 1 for any batch by default, so that steps are seconds.
        window_s: its length; until the last arrival by default.
        notes: see `Load`.

    Raises:
        InvalidLoadError: there is no call, or workers have no slots or the wrong number of speeds.
    """
    ordered = tuple(sorted(calls, key=lambda call: call.arrived_s))
    if not ordered:
        raise InvalidLoadError(f"{name} has no request")
    if slots < 1:
        raise InvalidLoadError(f"slots of a worker must be >= 1 (got {slots})")
    speeds = (1.0,) * slots if step_s is None else tuple(step_s)
    if len(speeds) != slots or min(speeds) <= 0:
        raise InvalidLoadError(f"{name}: a worker of {slots} slots has {slots} step times > 0 (got {len(speeds)})")
    last_s = ordered[-1].arrived_s
    return Load(name, ordered, slots, speeds, max(last_s, window_s or 0.0), tuple(notes))
