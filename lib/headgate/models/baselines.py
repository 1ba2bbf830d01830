"""The baseline agents: what answers for `baseline-random`, `baseline-greedy` and `baseline-solver`."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from headgate.core import Message
from headgate.models.wire import TASK_HEADER, TASK_HEADER_OPTION, TaskReference

T = TypeVar("T")

_JOIN_S = 5.0


class BackgroundLoop:
    """Runs coroutines in one daemon thread. Open it with `with`; leaving cancels what still runs.

    All of its work shares one loop, so that objects bound to a loop (locks, subprocesses) stay usable between calls.
    """

    def __init__(self, name: str) -> None:
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        loop, stop = self._started.result()
        loop.call_soon_threadsafe(stop.set)
        # Work that computes without an await cannot be cancelled; the thread is a daemon and ends with the process.
        self._thread.join(_JOIN_S)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work()` returns; a cancellation of the caller reaches it."""
        loop, _ = self._started.result()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))

    async def _serve(self) -> None:
        stop = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()


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
    for name, kind in BASELINES.items():
        if model == name or model.startswith(name + "-"):
            return kind
    return None


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
        self._background = BackgroundLoop("headgate-baselines")

    def __enter__(self) -> Self:
        self._background.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._background.__exit__()

    async def reply(self, kind: BaselineKind, task: TaskReference, conversation: Sequence[Message]) -> str:
        """Return what the baseline says; the same task and turn give the same answer.

        Raises:
            HeadgateError: if there is no such environment, or it fails.
        """
        rng = random.Random(f"{kind}/{task}/{len(conversation)}")

        async def work() -> str:
            environment = self._find_environment(task.environment)
            return await environment.baseline(kind, task.index, task.seed, conversation, rng)

        return await self._background.run(work)


def listed_baselines() -> dict[str, str]:
    """Return the baselines' names with what stands behind each, for a listing of models."""
    return dict.fromkeys((*BASELINES, JUDGE_BASELINE), NOT_A_MODEL)


def fingerprint(kind: str) -> str:
    """Return the `system_fingerprint` of a baseline's answers."""
    return f"headgate-baseline-{kind} ({NOT_A_MODEL})"
