"""What an environment is: it generates a task from an index, converses, scores in [0, 1] and says why."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from headgate.core import Message, record

BaselineKind = Literal["random", "greedy", "solver"]


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """What is known of an environment without running it.

    Attributes:
        name: registered name, e.g. `affine:sat`.
        summary: one line for listings.
        daily_rate: samples per model and day unless the campaign says otherwise.
        data_length: how many different tasks there are; indices run modulo this.
        max_rounds: model replies per episode at most.
        timeout_s: the whole episode, model calls included.
        reply_chars: longer replies are not read; they score 0 as a bad answer.
        licence: of the task data; empty where nobody states one.
        source: where the rule and the data come from.
        chance_score: mean score of the random baseline, measured by `headgate bench environments`; None if unknown.
        solver_rate: success rate of the solver baseline at least; lower where the bounds of an episode end before the
            solution does.
        tasks_are_drawn: whether every task is drawn anew from its index alone, so that the first n are like any
            other n; false for data that is listed in some order.
        needs_judge: whether episodes may end with `ForJudge`; it is a `JudgedEnvironment` then.
        runs_apart: whether it is played in child processes, since it blocks, leaks or may crash; one that needs a judge
            cannot be, but for those of collections whose judges give grades.
        runs_programs: whether programs that models wrote, or gave input to, run in the sandbox.
        executor: who plays it unless the campaign says so: `jobqueue` or `jobqueue:POOL` for outside workers; empty for
            the campaign's process. One that needs a judge cannot be handed out.
        replays: whether the same replies to the same task lead to the same end, so that stored conversations can be
            scored anew by playing them again. False where anything but index, seed and replies counts.
    """

    name: str
    summary: str
    daily_rate: float
    data_length: int
    max_rounds: int = 1
    timeout_s: float = 600.0
    reply_chars: int = 1_000_000
    licence: str = ""
    source: str = ""
    chance_score: float | None = None
    solver_rate: float = 0.95
    tasks_are_drawn: bool = False
    needs_judge: bool = False
    runs_apart: bool = False
    runs_programs: bool = False
    executor: str = ""
    replays: bool = True


@dataclass(frozen=True, slots=True)
class Score:
    """The end of an episode: `value` in [0, 1], whether that is a success, and the reason in one line.

    Attributes:
        answer: what was taken from the reply as the answer, written alike wherever it is the same: repeats of a task
            vote with it (maj@k). None where there is none, or where different answers may be right.
    """

    value: float
    success: bool
    why: str
    answer: str | None = None


@record
class Continue:
    """The episode goes on: what the environment says next."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ForJudge:
    """The end of an episode whose answer somebody else has to judge.

    Attributes:
        questions: what judges are asked, one conversation per judgement; where there are more judgements than these,
            they are asked again from the first on, where there are fewer, the last ones are left out.
    """

    questions: tuple[tuple[Message, ...], ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one reply of a judge says: `value` in [0, 1], and the judge's reason in one line."""

    value: float
    why: str


class Episode(Protocol):
    """One task in progress. Owned by one worker, closed exactly once."""

    @property
    def opening(self) -> Sequence[Message]:
        """The first messages, which pose the task."""

    async def answer(self, reply: str) -> Continue | Score | ForJudge:
        """Take the model's reply; a cancel point.

        After `max_rounds` replies the environment returns a `Score`, or a `ForJudge`, whatever the state.
        """

    async def close(self) -> None:
        """Free what the episode holds; legal at any time, more than once."""


@runtime_checkable
class Environment(Protocol):
    """A source of tasks. One instance serves all workers of a process; `open` may run concurrently with itself.

    Registered by an entry point of the group `headgate.environments`, whose value is a callable without arguments that
    returns it.
    """

    @property
    def spec(self) -> EnvironmentSpec:
        """What is known of it without running it; cheap, loads no data."""

    async def open(self, index: int, seed: int) -> Episode:
        """Begin task `index` (0 <= index < data_length). Equal arguments give equal tasks on every machine.

        Raises:
            EnvironmentFailedError: if the task cannot be made.
        """

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return what a baseline agent replies to `conversation`.

        `random` draws from what is legal, `greedy` takes a cheap rule of thumb from the text, `solver` knows the
        environment's own solution: a ceiling, not a model.
        """


@runtime_checkable
class JudgedEnvironment(Environment, Protocol):
    """An environment whose answers a judge reads: another model, asked by the campaign and admitted by its own limits.

    What a judge replies, and whether one replies at all, is never held against the judged model.
    """

    def judgement(self, reply: str) -> Judgement | None:
        """Return what a judge's reply says; None when it cannot be read, which is the judge's failure."""

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        """Return the score that the judgements of one answer make together; there is at least one."""


COLLECTION_GROUP: Final = "headgate.environment_collections"
"""Entry-point group; the name is the prefix, a value is a callable without arguments that returns a `Collection`."""


@runtime_checkable
class Collection(Protocol):
    """The environments of one package: `prefix:member`. None is sampled unless somebody names it.

    Making a collection is cheap and imports nothing of its package; everything else may take seconds. Its environments
    run apart, in processes of their own (`headgate.environments.apart`): they may block, and what they raise, leak or
    crash harms nobody else.
    """

    @property
    def prefix(self) -> str:
        """What stands before the colon in the names of its environments."""

    @property
    def summary(self) -> str:
        """One line for listings."""

    @property
    def extra(self) -> str:
        """The optional extra that carries its package."""

    def names(self) -> tuple[str, ...]:
        """Return the names of its environments, prefix included, sorted: all that can be known without being told.

        Raises:
            MissingExtraError: if its package is not installed.
            EnvironmentFailedError: if its package cannot be used on this machine; says how to fix it.
        """

    def environment(self, name: str) -> Environment:
        """Make the environment `name`, prefix included, which need not be one of `names()`.

        Raises:
            UnknownEnvironmentError: if there is none; names the nearest.
            MissingExtraError: if a package is not installed.
            EnvironmentFailedError: if it cannot be made; says how to fix it.
        """
