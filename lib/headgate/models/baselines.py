"""The models that need no provider: the baseline agents, and a simulated one whose service times are known exactly."""

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
"""Names of the baseline models. A name that goes on after a hyphen (`baseline-random-2`) is the same baseline."""

JUDGE_BASELINE: Final = "baseline-judge"
"""Name of the rule-based judge; it needs no task header, since all that it looks at is in the request."""

NOT_A_MODEL: Final = "a Headgate baseline, not a language model"

WITHOUT_TASK: Final = (
    f"This is {NOT_A_MODEL}. It answers only requests that name their task in the header {TASK_HEADER} "
    f"(environment/index/seed/sequence); set the option {TASK_HEADER_OPTION}: true on the model in the roster."
)


def baseline_of(model: str) -> BaselineKind | None:
    """Return which baseline a model's name stands for, None for any other model."""
    return next((kind for name, kind in BASELINES.items() if model == name or model.startswith(f"{name}-")), None)


def is_judge_baseline(model: str) -> bool:
    """Return whether a model's name stands for the rule-based judge (`baseline-judge-2` does, too)."""
    return model == JUDGE_BASELINE or model.startswith(f"{JUDGE_BASELINE}-")


def judge_reply(conversation: Sequence[Message]) -> str:
    """Return what the rule-based judge replies; it says that it is no language model."""
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
    """Asks the environments' own baselines, off the loop that serves requests. Open it with `with`."""

    def __init__(self, find_environment: Callable[[str], Environment] = installed_environment) -> None:
        self._find_environment = find_environment
        self._loop = LoopThread("headgate-baselines")  # one: what is bound to it (locks, subprocesses) stays usable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.stop(_STOP_S)

    async def reply(self, kind: BaselineKind, task: TaskReference, conversation: Sequence[Message]) -> str:
        """Return what the baseline says; the same task and turn give the same answer.

        Raises:
            HeadgateError: if there is no such environment, or it fails.
        """
        rng = random.Random(f"{kind}/{task}/{len(conversation)}")

        async def work() -> str:
            environment = self._find_environment(task.environment)
            return await environment.baseline(kind, task.index, task.seed, conversation, rng)

        return await asyncio.wrap_future(self._loop.start(work()))


def listed_baselines() -> dict[str, str]:
    """Return the baselines' names with what stands behind each, for a listing of models."""
    return dict.fromkeys((*BASELINES, JUDGE_BASELINE), NOT_A_MODEL)


def fingerprint(kind: str) -> str:
    """Return the `system_fingerprint` of a baseline's answers."""
    return f"headgate-baseline-{kind} ({NOT_A_MODEL})"


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
