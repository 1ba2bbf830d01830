"""Models that need no provider: the baseline agents, and a simulated model whose service times are known exactly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from headgate.core import Message
from headgate.models.faults import log_normal
from headgate.models.wire import TASK_HEADER, TASK_HEADER_OPTION, TaskReference
from headgate.net.event_loop import LoopThread

_STOP_S: Final = 5.0


if TYPE_CHECKING:
    from headgate.environments import BaselineKind, Environment

BASELINES: Final[dict[str, BaselineKind]] = {
    "baseline-random": "random",
    "baseline-greedy": "greedy",
    "baseline-solver": "solver",
}
"""Names of the baseline models. A name with a suffix after a hyphen (`baseline-random-2`) is the same baseline."""

JUDGE_BASELINE: Final = "baseline-judge"
"""Name of the rule-based judge; it needs no task header, since its requests contain all that it needs."""

NOT_A_MODEL: Final = "a Headgate baseline, not a language model"

WITHOUT_TASK: Final = (
    f"This is {NOT_A_MODEL}. It answers only requests that name their task in the header {TASK_HEADER} "
    f"(environment/index/seed/sequence); set the option {TASK_HEADER_OPTION}: true on the model in the roster."
)


def baseline_of(model: str) -> BaselineKind | None:
    """Return the baseline that a model's name stands for, or None for any other model."""
    return next((kind for name, kind in BASELINES.items() if model == name or model.startswith(f"{name}-")), None)


def is_judge_baseline(model: str) -> bool:
    """Return whether a model's name stands for the rule-based judge (as `baseline-judge-2` does)."""
    return model == JUDGE_BASELINE or model.startswith(f"{JUDGE_BASELINE}-")


def judge_reply(conversation: Sequence[Message]) -> str:
    """Return the reply of the rule-based judge, which says that it is not a language model."""
    from headgate.environments import coverage_judge  # noqa: PLC0415 - a server of simulated models needs no environment

    return coverage_judge(conversation)


def installed_environment(name: str) -> Environment:
    """Return the installed environment `name`.

    Raises:
        UnknownEnvironmentError: if no installed package registers it.
    """
    from headgate.environments import environment  # noqa: PLC0415 - a server of simulated models needs no environment

    return environment(name)


class BaselineAgents:
    """Runs the environments' own baselines, off the event loop that serves requests. Open it with `with`."""

    def __init__(self, find_environment: Callable[[str], Environment] = installed_environment) -> None:
        self._find_environment = find_environment
        self._loop = LoopThread("headgate-baselines")  # one loop: locks and subprocesses bound to it stay usable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.stop(_STOP_S)

    async def reply(self, kind: BaselineKind, task: TaskReference, conversation: Sequence[Message]) -> str:
        """Return the baseline's reply; the same task and turn give the same reply.

        Raises:
            HeadgateError: if there is no such environment, or it fails.
        """
        rng = random.Random(f"{kind}/{task}/{len(conversation)}")

        async def work() -> str:
            environment = self._find_environment(task.environment)
            return await environment.baseline(kind, task.index, task.seed, conversation, rng)

        return await asyncio.wrap_future(self._loop.start(work()))


def listed_baselines() -> dict[str, str]:
    """Return the baselines' names and descriptions, for a listing of models."""
    return dict.fromkeys((*BASELINES, JUDGE_BASELINE), NOT_A_MODEL)


def fingerprint(kind: str) -> str:
    """Return the `system_fingerprint` of a baseline's answers."""
    return f"headgate-baseline-{kind} ({NOT_A_MODEL})"


SIMULATED: Final = "simulated"
"""Models of this name, or with it and a hyphen as prefix, share one simulated provider."""


class SimulationPlan(BaseModel):
    """A provider that serves `cap` requests at once, over all models, and answers 429 beyond that.

    Attributes:
        cap: requests served at once.
        mean_s: mean service time.
        cv: coefficient of variation of the log-normal service times; 0 makes them all equal.
        reject_s: time after which a refusal is sent.
        retry_after_s: Retry-After of a refusal; no such header if absent.
        seed: random seed of the service times.
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
    """What the simulated provider has done since its start or the last reset: counted, never estimated."""

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
        """Reset the counters; requests in flight stay in flight."""
        self._since = self._moved_at = now
        self._busy_slot_s = 0.0
        self._peak = self._in_flight
        self._by_status: Counter[int] = Counter()
        self._by_model: Counter[str] = Counter()

    def enter(self, model: str, now: float) -> float | None:
        """Return the service time of an admitted request, or None if all slots are busy."""
        if self._in_flight >= self.plan.cap:
            self._by_status[429] += 1
            return None
        self._move(now, +1)
        self._by_model[model] += 1
        return log_normal(self.plan.mean_s, self.plan.cv, self._rng.random()) if self.plan.mean_s else 0.0

    def leave(self, status: int, now: float) -> None:
        """Free the slot of an admitted request; `status` is 499 if its client disconnected."""
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
