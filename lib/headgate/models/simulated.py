"""The simulated model: a provider of fixed concurrency whose service times and busy time are known exactly."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from headgate.models.faults import log_normal

SIMULATED: Final = "simulated"
"""Models of this name, or of one that begins with it and a hyphen, share one simulated provider."""


class SimulationPlan(BaseModel):
    """A provider that serves `cap` requests at once, all models together, and answers 429 beyond.

    Attributes:
        cap: requests in service at once.
        mean_s: mean service time.
        cv: coefficient of variation of the log-normal service times; 0 makes them all equal.
        reject_s: after which a refused request is answered.
        retry_after_s: of a refusal; no such header when absent.
        seed: of the service times.
        reply: what the model says.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    cap: Annotated[int, Field(ge=1)] = 64
    mean_s: Annotated[float, Field(ge=0)] = 1.0
    cv: Annotated[float, Field(ge=0)] = 1.0
    reject_s: Annotated[float, Field(ge=0)] = 0.0
    retry_after_s: Annotated[float, Field(ge=0)] | None = None
    seed: int = 0
    reply: str = "This is a simulated answer; no language model was asked."


@dataclass(frozen=True, slots=True)
class SimulationStats:
    """What the simulated provider did since its start or the last reset: counted, never estimated."""

    cap: int
    elapsed_s: float
    busy_slot_s: float
    utilisation: float
    in_flight: int
    peak: int
    by_status: dict[str, int]
    by_model: dict[str, int]


class Simulation:
    """The state of the simulated provider. Pure: the caller waits out the service time between `enter` and `leave`.

    Invariants: 0 <= in flight <= cap; the busy integral never falls.
    """

    def __init__(self, plan: SimulationPlan, now: float) -> None:
        self.plan = plan
        self._rng = random.Random(plan.seed)
        self._in_flight = 0
        self.reset(now)

    def reset(self, now: float) -> None:
        """Begin to count anew; what is in flight stays in flight."""
        self._since = self._moved_at = now
        self._busy_slot_s = 0.0
        self._peak = self._in_flight
        self._by_status: Counter[int] = Counter()
        self._by_model: Counter[str] = Counter()

    def enter(self, model: str, now: float) -> float | None:
        """Return the service time of a request that is let in, None when all slots are busy."""
        if self._in_flight >= self.plan.cap:
            self._by_status[429] += 1
            return None
        self._move(now, +1)
        self._by_model[model] += 1
        return log_normal(self.plan.mean_s, self.plan.cv, self._rng.random()) if self.plan.mean_s else 0.0

    def leave(self, status: int, now: float) -> None:
        """Free the slot of a request that was let in; `status` 499 when its client went away."""
        self._move(now, -1)
        self._by_status[status] += 1

    def stats(self, now: float) -> SimulationStats:
        """Return the figures up to `now`."""
        self._move(now, 0)
        elapsed_s = now - self._since
        return SimulationStats(
            cap=self.plan.cap,
            elapsed_s=elapsed_s,
            busy_slot_s=self._busy_slot_s,
            utilisation=self._busy_slot_s / (self.plan.cap * elapsed_s) if elapsed_s > 0 else 0.0,
            in_flight=self._in_flight,
            peak=self._peak,
            by_status={str(status): count for status, count in sorted(self._by_status.items())},
            by_model=dict(sorted(self._by_model.items())),
        )

    def validate(self) -> None:
        """Assert the invariants."""
        assert 0 <= self._in_flight <= self.plan.cap, self._in_flight
        assert self._in_flight <= self._peak <= self.plan.cap, self._peak

    def _move(self, now: float, change: int) -> None:
        self._busy_slot_s += self._in_flight * (now - self._moved_at)
        self._moved_at = now
        self._in_flight += change
        self._peak = max(self._peak, self._in_flight)
