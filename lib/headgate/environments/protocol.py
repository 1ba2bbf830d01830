"""The environment protocol: generate a task from an index, converse, and return a score in [0, 1] with a reason."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from headgate.core import Message, record

BaselineKind = Literal["random", "greedy", "solver"]


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """The static properties of an environment.

    Attributes:
        name: registered name, e.g. `affine:sat`.
        summary: one line for listings.
        daily_rate: samples per model and day, unless the campaign sets another rate.
        data_length: number of different tasks; indices run modulo this.
        max_rounds: maximum model replies per episode.
        timeout_s: seconds for the whole episode, model calls included.
        reply_chars: maximum characters of a reply; a longer one is not read and scores 0 as a bad answer.
        licence: licence of the task data; empty if none is stated.
        source: where the rules and the data come from.
        chance_score: mean score of the random baseline, measured by `headgate bench environments`; None if unknown.
        solver_rate: minimum success rate of the solver baseline; lower where an episode's limits end it before the
            solution is complete.
        tasks_are_drawn: whether every task is drawn independently from its index, so that the first n are like any
            other n; false for data that is listed in some order.
        needs_judge: whether episodes may end with `ForJudge`; the environment must then be a `JudgedEnvironment`.
        runs_apart: whether it runs in child processes, since it blocks, leaks or may crash; not possible for one that
            needs a judge, except in collections whose judges give grades.
        runs_programs: whether programs that models wrote, or gave input to, run in the sandbox.
        executor: who plays it by default: `jobqueue` or `jobqueue:POOL` for outside workers; empty for the campaign's
            process. Outside workers cannot play one that needs a judge.
        replays: whether the same replies to the same task lead to the same outcome, so that stored conversations can
            be scored again by replaying them. False where anything but index, seed and replies matters.
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
        answer: the answer extracted from the reply, in a canonical form, with which repeats of a task vote (maj@k).
            None if there is none, or if different answers may be right.
    """

    value: float
    success: bool
    why: str
    answer: str | None = None


@record
class Continue:
    """The episode continues with these messages from the environment."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ForJudge:
    """The end of an episode whose answer a judge has to score.

    Attributes:
        questions: what judges are asked, one conversation per judgement; further judgements start again with the
            first one, and with fewer judgements the last ones are not asked.
    """

    questions: tuple[tuple[Message, ...], ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judge's verdict: `value` in [0, 1], and the reason in one line."""

    value: float
    why: str


class Episode(Protocol):
    """One task in progress. Owned by one worker, closed exactly once."""

    @property
    def opening(self) -> Sequence[Message]:
        """The first messages, which state the task."""

    async def answer(self, reply: str) -> Continue | Score | ForJudge:
        """Process the model's reply; a cancel point.

        After `max_rounds` replies the environment returns a `Score` or a `ForJudge`, whatever the state.
        """

    async def close(self) -> None:
        """Release the episode's resources; may be called at any time, repeatedly."""


@runtime_checkable
class Environment(Protocol):
    """A source of tasks. One instance serves all workers of a process; `open` may run concurrently with itself.

    Registered by an entry point of the group `headgate.environments`, whose value is a callable without arguments that
    returns the environment.
    """

    @property
    def spec(self) -> EnvironmentSpec:
        """Its static properties; cheap, loads no data."""

    async def open(self, index: int, seed: int) -> Episode:
        """Start task `index` (0 <= index < data_length). Equal arguments give equal tasks on every machine.

        Raises:
            EnvironmentFailedError: if the task cannot be created.
        """

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return a scripted baseline's reply to `conversation`.

        `random` draws from the legal replies, `greedy` applies a cheap rule of thumb to the text, `solver` uses the
        environment's own solution: a ceiling, not a model.
        """


@runtime_checkable
class JudgedEnvironment(Environment, Protocol):
    """An environment whose answers are scored by a judge: another model, called by the campaign under its own limits.

    A judge's bad or missing reply never counts against the judged model.
    """

    def judgement(self, reply: str) -> Judgement | None:
        """Return the judgement in a judge's reply; None if it cannot be read, which counts as the judge's failure."""

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        """Return the score from all judgements of one answer; there is at least one."""


COLLECTION_GROUP: Final = "headgate.environment_collections"
"""Entry-point group; the name is the prefix, a value is a callable without arguments that returns a `Collection`."""


@runtime_checkable
class Collection(Protocol):
    """The environments of one package: `prefix:member`. Each is sampled only if named.

    Creating a collection is cheap and imports nothing of its package; anything else may take seconds. Its environments
    run in processes of their own (`headgate.environments.apart`), so that blocking, exceptions, leaks and crashes
    affect nothing else.
    """

    @property
    def prefix(self) -> str:
        """The part before the colon in the names of its environments."""

    @property
    def summary(self) -> str:
        """One line for listings."""

    @property
    def extra(self) -> str:
        """The optional extra that installs its package."""

    def names(self) -> tuple[str, ...]:
        """Return the names of its environments, prefix included, sorted: all those that can be listed.

        Raises:
            MissingExtraError: if its package is not installed.
            EnvironmentFailedError: if its package cannot be used on this machine; the error says how to fix it.
        """

    def environment(self, name: str) -> Environment:
        """Create the environment `name`, prefix included, which need not be one of `names()`.

        Raises:
            UnknownEnvironmentError: if there is none; the error names the nearest.
            MissingExtraError: if a package is not installed.
            EnvironmentFailedError: if it cannot be created; the error says how to fix it.
        """
