"""Rescoring of stored conversations: replayed with the stored replies of the model, or read by a judge.

No sampled model is asked: its replies are stored. An environment poses the same task for the same index and seed, so
with the same replies it takes the same course, up to where its rules have changed; if it says something other than
what is stored, the score would be for an answer to another question, so the sample keeps its old score.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
import polars as pl

from headgate.config import Settings
from headgate.core import Chat, ChatError, ChatReply, ErrorKind, Message, Model, SystemClock, redacted, sample_task
from headgate.core.audit import process_user, record_change
from headgate.core.errors import EnvironmentFailedError, HeadgateError, HostLostError
from headgate.core.events import unheard
from headgate.environments import (
    Environment,
    EpisodeResult,
    JudgedEnvironment,
    Judgement,
    Registry,
    converse,
    end_idle_processes,
    registry_of,
)
from headgate.environments.rubric import Rubric, RubricEnvironment
from headgate.run.environments import lockable_environments
from headgate.run.judgements import reminded
from headgate.run.judging import EnvironmentVerdicts, judge_of
from headgate.run.plan import ChatSource
from headgate.run.trials import asking
from headgate.storage import Chosen, Journal, JournalThread, Mark, SampleStore, Verb, checked_reason, new_mark

FLUSH_S: Final = 5.0
"""Interval of storing scores; a kill loses at most the scores since, which the next call computes again."""

MOST_UNASKED: Final = 20
"""Consecutive samples whose judge's service failed, each after retries, before giving up on thousands more."""

_FLUSH_ROWS: Final = 1_000
_RUBRIC: Final = "/rubric/"
_OURS: Final = (ErrorKind.ENVIRONMENT, ErrorKind.JUDGE)
"""Failures that a new version or another judge may not have; other samples without a score lack an answer."""

OnRescored = Callable[[int, int], None]
"""Called with the number of samples looked at, and their total."""


@dataclass(frozen=True, slots=True)
class Rescoring:
    """Which conversations to rescore, who asked for it, and why.

    Attributes:
        chosen: the samples; `task_ids`, if given, narrows them down.
        reason: why, for readers of the scores.
        by: who asked for it; the user of this process when empty.
        rubric: the rubric that the judge applies, in place of each environment's own rule.
        scorer: label of the new scores; when empty, the judge, or the packages of the environment with their
            versions. Samples that this scorer has already scored are left out.
    """

    chosen: Chosen
    reason: str
    by: str = ""
    task_ids: Collection[str] | None = None
    rubric: Rubric | None = None
    scorer: str = ""


@dataclass(slots=True)
class PairChange:
    """How the scores of one model in one environment changed; means are over the rescored samples."""

    samples: int = 0
    changed: int = 0
    scored_before: int = 0
    sum_before: float = 0.0
    sum_after: float = 0.0

    @property
    def mean_before(self) -> float | None:
        """The mean score before; None if none of them had a score."""
        return self.sum_before / self.scored_before if self.scored_before else None

    @property
    def mean_after(self) -> float | None:
        """The mean score after; None before the first."""
        return self.sum_after / self.samples if self.samples else None


@dataclass(slots=True)
class Rescored:
    """What was rescored, or would be.

    Attributes:
        marks: ids of the marks that hold the scores; one per scorer.
        pairs: the changes, by model and environment.
        known: number of samples that this scorer had scored already.
        left_out: reasons why samples keep their score, with their counts.
        stopped_by: why it ended before the last sample; empty if it did not.
    """

    marks: list[str] = field(default_factory=list)
    pairs: defaultdict[tuple[str, str], PairChange] = field(default_factory=lambda: defaultdict(PairChange))
    known: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    stopped_by: str = ""

    @property
    def samples(self) -> int:
        """The number of rescored samples."""
        return sum(pair.samples for pair in self.pairs.values())


class _NotScoredError(Exception):
    """A sample keeps its score; the message says why."""


class _JudgeGoneError(Exception):
    """The judge's day is used up, or it does not answer; the message says why."""


async def rescore(
    settings: Settings,
    store: SampleStore,
    what: Rescoring,
    *,
    judge: Model | None = None,
    dry_run: bool = False,
    stop: asyncio.Event | None = None,
    on_progress: OnRescored | None = None,
) -> Rescored:
    """Rescore stored conversations and return what changed; both scores are kept, and the new one is used.

    Scores are stored every few seconds. However it ends, calling it again continues with the rest.

    Args:
        settings: of the judge, requests and served environments; the judge's budget is that of their campaign.
        store: the store with the samples.
        what: see `Rescoring`.
        judge: used in place of the one that the settings name.
        dry_run: score nothing; the pairs tell how many samples would be rescored.
        stop: set to end early.
        on_progress: see `OnRescored`.

    Raises:
        InvalidInputError: if the reason is empty or invalid, or the judge cannot be used.
        SandboxUnavailableError: if an environment runs programs, and this machine cannot sandbox them.
        StoreError: if the store fails; scores stored before remain.
    """
    checked_reason(what.reason)
    if judge is None and (settings.judge_model or what.rubric is not None):
        judge = judge_of(settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, end_idle_processes)
        chats = None
        if judge is not None and not dry_run:
            clock = SystemClock()
            requests, chats = await stack.enter_async_context(asking(settings, clock))
            requests.budgets.own_only.add(judge.key)
            requests.register(judge)
            if judge.budget.daily_tokens is not None:
                thread = JournalThread(Journal(settings.journal, settings.campaign))
                stack.callback(thread.close)
                await requests.budgets.share(thread)
                stack.push_async_callback(requests.budgets.leave)
        run = _Rescore(settings, registry_of(settings), store, what, judge, chats, on_progress, dry_run)
        try:
            await run.run(stop or asyncio.Event())
        finally:
            await run.flush()
    done = run.done
    if done.samples and not dry_run:
        said = f"{done.samples} samples scored anew ({', '.join(done.marks)}): {what.reason}"
        record_change("samples rescore", store.url, after=said, who=what.by)
    return done


@dataclass(slots=True, eq=False)
class _Rescore:
    """One call of `rescore`. Owned by it."""

    settings: Settings
    registry: Registry
    store: SampleStore
    what: Rescoring
    judge: Model | None
    chats: ChatSource | None
    told: OnRescored | None
    dry_run: bool
    done: Rescored = field(default_factory=Rescored)
    _looked: int = 0
    _total: int = 0
    _environments: dict[str, asyncio.Future[tuple[Environment, str]]] = field(default_factory=dict)
    _marks: dict[str, Mark] = field(default_factory=dict)
    _fresh: defaultdict[str, list[Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _flushed: float = field(default_factory=time.monotonic)
    _number: int = 0
    _unasked: int = 0
    _seen: set[str] = field(default_factory=set)
    _verdicts: EnvironmentVerdicts = field(default_factory=EnvironmentVerdicts)

    async def run(self, stop: asyncio.Event) -> None:
        """Look at every chosen sample, with as many at once as there are workers, or as the judge takes requests."""
        self._total = await self._chosen()
        workers = self.settings.num_evaluation_workers if self.judge is None else self.judge.max_parallel
        at_once = asyncio.Semaphore(workers)
        async for rows in self.store.parts(self.what.chosen, self.what.task_ids):
            async with asyncio.TaskGroup() as group:
                for row in rows.iter_rows(named=True):
                    if stop.is_set():
                        self.done.stopped_by = self.done.stopped_by or "stopped by request"
                        return
                    await at_once.acquire()
                    group.create_task(self._one(row, stop, at_once.release))
                    unstored = sum(map(len, self._fresh.values()))
                    if time.monotonic() - self._flushed > FLUSH_S or unstored >= _FLUSH_ROWS:
                        await self.flush()

    async def _one(self, row: Mapping[str, Any], stop: asyncio.Event, release: Callable[[], None]) -> None:
        try:
            if row["task_id"] not in self._seen:
                self._seen.add(row["task_id"])
                await self._look(row)
        except _NotScoredError as error:
            self.done.left_out[str(error)] += 1
        except _JudgeGoneError as error:
            self.done.stopped_by = str(error)
            stop.set()
        finally:
            release()
            self._looked += 1
            if self.told is not None:
                self.told(self._looked, self._total)

    async def flush(self) -> None:
        """Store the scores computed since the last call; each call writes new objects."""
        fresh, self._fresh = self._fresh, defaultdict(list)
        self._flushed, self._number = time.monotonic(), self._number + 1
        for scorer, rows in fresh.items():
            if scorer not in self._marks:
                marks = (await self.store.visible()).marks
                by, reason = self.what.by or process_user(), self.what.reason.strip()
                self._marks[scorer] = new_mark(marks, Verb.RESCORE, time.time(), by=by, reason=reason, scorer=scorer)
                self.done.marks.append(self._marks[scorer].mark)
            await self.store.put_scores(self._marks[scorer], rows, self._number)

    async def _chosen(self) -> int:
        chosen = self.what.chosen
        span = (chosen.environments or None, chosen.since, chosen.until)
        rows = chosen.rows((await self.store.scan(*span, ["task_id", *Chosen.COLUMNS])).frame)
        ids = self.what.task_ids
        return rows.height if ids is None else rows.filter(pl.col("task_id").is_in(list(ids))).height

    async def _look(self, row: Mapping[str, Any]) -> None:
        kind = row["error_kind"]
        if kind is not None and kind not in _OURS:
            raise _NotScoredError(f"nothing to score: {kind}")
        if (name := row["environment"]) not in self._environments:
            self._environments[name] = asyncio.ensure_future(self._scoring(name))
        environment, scorer = await self._environments[name]
        if row["scorer"] == scorer:
            self.done.known += 1
            return
        if not row["conversation"]:
            raise _NotScoredError("its conversation is not stored")
        pair = self.done.pairs[row["model"], row["environment"]]
        if self.dry_run:
            pair.samples += 1
            return
        result = await self._result(environment, row)
        if result.score is None:
            raise _NotScoredError(f"{result.error_kind or 'it'} gave no score: {result.error or ''}"[:200])
        pair.samples += 1
        pair.changed += result.score != row["score"]
        pair.sum_after += result.score
        if row["score"] is not None:
            pair.scored_before += 1
            pair.sum_before += row["score"]
        told = {"task_id": row["task_id"], "score": result.score, "success": result.success, "why": result.why}
        kind = None if result.error_kind is None else str(result.error_kind)
        self._fresh[scorer].append(told | {"error_kind": kind, "error": result.error})

    async def _scoring(self, name: str) -> tuple[Environment, str]:
        rubric, base_name = self.what.rubric, name.partition(_RUBRIC)[0]
        if _RUBRIC in name and rubric is None:
            raise _NotScoredError(f"{name} is scored by a rubric, whose file was not given")
        try:
            environment = await asyncio.to_thread(self.registry.environment, base_name)
        except HeadgateError as error:
            raise _NotScoredError(error.message) from error
        if not environment.spec.replays:
            raise _NotScoredError(f"{base_name} scores no stored conversations: the same replies may end otherwise")
        await lockable_environments({base_name: environment}, [base_name])
        if rubric is not None:
            environment = RubricEnvironment(environment, rubric)
        if not environment.spec.needs_judge:
            return environment, self.what.scorer or self.registry.made_by(base_name)
        if self.judge is None:
            raise _NotScoredError(f"{name} needs a judge, and none was named")
        by = f" by rubric {rubric.label}" if rubric is not None else ""
        return environment, self.what.scorer or f"{self.judge.key}{by}"

    async def _result(self, environment: Environment, row: Mapping[str, Any]) -> EpisodeResult:
        stored = [Message(*message[:2]) for message in orjson.loads(row["conversation"])]
        try:
            result = await converse(environment, row["index"], row["seed"], _replayed(stored), model=row["model"])
        except HostLostError as error:
            raise _NotScoredError(error.message) from error
        return await self._judged(environment, row, result) if result.questions else result

    async def _judged(self, environment: Environment, row: Mapping[str, Any], result: EpisodeResult) -> EpisodeResult:
        """Return a result with the judge's score; as in a run, a judge's failure is not held against the model."""
        assert isinstance(environment, JudgedEnvironment)
        assert self.judge is not None
        asked, questions, given = self.settings.judgements, result.questions, dict[int, Judgement]()
        try:
            for number in range(1, asked + 1):
                judgement = await self._judgement(environment, row, number, questions[(number - 1) % len(questions)])
                if judgement is not None:
                    given[number] = judgement
            score = self._verdicts.score(environment, given, asked) if given else None
        except ChatError as error:
            if error.kind is ErrorKind.DAILY_BUDGET:
                raise _JudgeGoneError(str(error)) from error
            why = f"judge {self.judge.key} at {self.judge.base_url} could not be asked: {error.kind}"
            self._unasked += error.kind.is_service_error
            if self._unasked >= MOST_UNASKED:
                raise _JudgeGoneError(f"{why}, {MOST_UNASKED} times in a row: {error}") from error
            raise _NotScoredError(why) from error
        except EnvironmentFailedError as error:
            raise _NotScoredError(error.message) from error
        if score is None:
            raise _NotScoredError("no judgement could be read")
        return replace(result, score=float(score.value), success=score.success, why=redacted(score.why))

    async def _judgement(
        self, environment: JudgedEnvironment, row: Mapping[str, Any], number: int, question: Sequence[Message]
    ) -> Judgement | None:
        """Return what the judge says, asked once more when its first reply cannot be read."""
        assert self.judge is not None
        assert self.chats is not None
        task = sample_task(
            campaign=row["campaign"],
            model=self.judge.key,
            environment=row["environment"],
            sequence=row["sequence"],
            data_length=environment.spec.data_length,
            due_at=row["finished_at"],
            stage=f"{row['stage']}/rescore.{number}",
        )
        chat = self.chats.chat(self.judge, task, unheard)
        for _ in range(2):
            reply = await chat(question)
            self._unasked = 0
            judgement = self._verdicts.read(environment, number, reply.text)
            if judgement is not None:
                return judgement
            question = reminded(question, reply.text, self._verdicts.reminder)
        return None


def _replayed(stored: Sequence[Message]) -> Chat:
    """Return what gives the stored replies, for as long as the environment says what it said then."""

    async def chat(messages: Sequence[Message]) -> ChatReply:
        said = len(messages)
        if list(messages) != list(stored[:said]):
            raise _NotScoredError("the environment now says something other than what the model replied to")
        if said >= len(stored) or stored[said].role != "assistant":
            raise _NotScoredError("the conversation ends before it is scored")
        return ChatReply(stored[said].content)

    return chat
