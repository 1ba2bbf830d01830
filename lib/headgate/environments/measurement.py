"""What an environment costs and what its baselines score."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, get_args

from headgate.core import ChatReply, ErrorKind, Message, seed_of
from headgate.environments.episode import EpisodeResult, converse
from headgate.environments.judge_baseline import coverage_judge
from headgate.environments.judge_questions import judged_score, read_reply
from headgate.environments.protocol import (
    BaselineKind,
    Continue,
    Environment,
    Episode,
    ForJudge,
    JudgedEnvironment,
    Score,
)
from headgate.environments.registry import environment

KINDS: Final[tuple[BaselineKind, ...]] = get_args(BaselineKind)


@dataclass(frozen=True, slots=True)
class BaselineScore:
    """The result of one baseline.

    Attributes:
        mean_score: mean over all episodes, with 0 for one that failed.
        success_rate: share of episodes that the environment considers a success.
        errors: episodes that ended without a score.
    """

    kind: BaselineKind
    mean_score: float
    success_rate: float
    turns: float
    errors: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an environment costs and what its baselines score.

    Times are means in milliseconds; CPU time includes that of sandboxed programs that have ended.

    Attributes:
        episodes: episodes per baseline.
        open_wall_ms: time to open a task; tasks that come from a cache count, too.
        answer_wall_ms: time to process one reply: to score it, or to make the next step.
        cpu_ms: CPU time per episode of everything but the baselines themselves.
    """

    name: str
    episodes: int
    open_wall_ms: float
    answer_wall_ms: float
    cpu_ms: float
    opening_chars: float
    baselines: tuple[BaselineScore, ...]


async def measure(name: str, episodes: int) -> Measurement:
    """Return costs and baseline scores of environment `name` over its tasks 0 to `episodes` - 1.

    Raises:
        UnknownEnvironmentError: if no package registers `name`.
    """
    watched = _Watched(environment(name))
    baselines = [await _played(watched, kind, episodes) for kind in KINDS]
    return Measurement(
        name=name,
        episodes=episodes,
        open_wall_ms=1e3 * fmean(watched.opening_s),
        answer_wall_ms=1e3 * fmean(watched.answering_s),
        cpu_ms=1e3 * watched.cpu_s / (episodes * len(KINDS)),
        opening_chars=fmean(watched.opening_chars),
        baselines=tuple(baselines),
    )


async def baseline_episode(environment: Environment, kind: BaselineKind, index: int) -> EpisodeResult:
    """Return the result of baseline `kind` on task `index`; equal on every call.

    An answer that needs a judge is judged by the rule-based `coverage_judge`.
    """
    seed = seed_of(environment.spec.name, index)
    rng = random.Random(f"{kind}:{index}")

    async def chat(messages: Sequence[Message]) -> ChatReply:
        return ChatReply(await environment.baseline(kind, index, seed, messages, rng))

    result = await converse(environment, index, seed, chat)
    return _judged(environment, result) if result.questions else result


def _judged(environment: Environment, result: EpisodeResult) -> EpisodeResult:
    """Return a result with the verdict of the rule-based judge."""
    inner = environment.inner if isinstance(environment, _Watched) else environment
    assert isinstance(inner, JudgedEnvironment)  # checked when it was registered
    judgement = read_reply(inner, coverage_judge(result.questions[0]))
    if judgement is None:
        return replace(result, error_kind=ErrorKind.JUDGE, error="the rule-based judge cannot read the question")
    score = judged_score(inner, [judgement])
    return replace(result, score=float(score.value), success=score.success, why=score.why)


async def _played(watched: _Watched, kind: BaselineKind, episodes: int) -> BaselineScore:
    results = [await baseline_episode(watched, kind, index) for index in range(episodes)]
    return BaselineScore(
        kind=kind,
        mean_score=fmean(result.score or 0.0 for result in results),
        success_rate=fmean(result.success for result in results),
        turns=fmean(result.turns for result in results),
        errors=sum(result.score is None for result in results),
    )


class _Watched:
    """Wraps an environment and records what its calls cost. Lives as long as one measurement."""

    def __init__(self, inner: Environment) -> None:
        self.inner = inner
        self.spec = inner.spec
        self.opening_s: list[float] = []
        self.answering_s: list[float] = []
        self.opening_chars: list[int] = []
        self.cpu_s = 0.0

    async def open(self, index: int, seed: int) -> Episode:
        started, cpu = time.perf_counter(), _cpu_s()
        episode = await self.inner.open(index, seed)
        self.opening_s.append(time.perf_counter() - started)
        self.cpu_s += _cpu_s() - cpu
        self.opening_chars.append(sum(len(message.content) for message in episode.opening))
        return _WatchedEpisode(episode, self)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        return await self.inner.baseline(kind, index, seed, conversation, rng)


class _WatchedEpisode:
    def __init__(self, inner: Episode, watched: _Watched) -> None:
        self._inner = inner
        self._watched = watched
        self.opening = inner.opening

    async def answer(self, reply: str) -> Continue | Score | ForJudge:
        started, cpu = time.perf_counter(), _cpu_s()
        answer = await self._inner.answer(reply)
        self._watched.answering_s.append(time.perf_counter() - started)
        self._watched.cpu_s += _cpu_s() - cpu
        return answer

    async def close(self) -> None:
        await self._inner.close()


def _cpu_s() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in usage)
