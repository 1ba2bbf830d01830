"""Stored conversations are scored again without their models; both scores stay, and a kill loses or doubles none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate.config import Settings
from headgate.core import ChatReply, Message, Sample, errors, seed_of, task_id_of
from headgate.environments import Continue, EnvironmentSpec, Score, converse, environment, environments_at_hand
from headgate.environments.rubric import Criterion, Rubric
from headgate.models import serve
from headgate.run import Rescored, Rescoring, rescore
from headgate.storage import Chosen, Invalidation, SampleStore, open_store
from headgate.storage.mark_log import MARKS
from headgate.storage.objects import FolderObjects
from tests.storage.samples import START, sample

NAME = "own:sum"


class Sums:
    """Adds up two numbers in two replies; `right` is what its scorer takes for the right answer."""

    def __init__(self, right: int, question: str = "first number?", **spec: Any) -> None:
        self.spec = EnvironmentSpec(NAME, "Sums.", 10.0, 100, max_rounds=2, **spec)
        self.right = right
        self.question = question
        self.scored = 0

    async def open(self, index: int, seed: int) -> _Sum:
        return _Sum(self, index)

    async def baseline(self, *_: Any) -> str:
        return "1"


@dataclass
class _Sum:
    of: Sums
    index: int
    said: int = 0

    @property
    def opening(self) -> tuple[Message, ...]:
        return (Message("user", f"task {self.index}: {self.of.question}"),)

    async def answer(self, reply: str) -> Continue | Score:
        self.said += 1
        if self.said == 1:
            return Continue((Message("user", f"after {reply}?"),))
        self.of.scored += 1
        if reply == "fail":
            raise RuntimeError("no such number")
        return Score(float(reply == str(self.of.right)), success=reply == str(self.of.right), why=f"it said {reply}")

    async def close(self) -> None:
        return None


def _talk(index: int, second: str) -> str:
    said = [("user", f"task {index}: first number?"), ("assistant", "1"), ("user", "after 1?"), ("assistant", second)]
    return orjson.dumps(said).decode()


def _samples(count: int, *, first: int = 0) -> list[Sample]:
    """Answers 4, all scored 0: the scorer that was there looked for something else."""
    rows = [sample(first + n, environment=NAME, score=0.0, success=False, conversation="") for n in range(count)]
    return [replace(row, index=row.sequence % 100, conversation=_talk(row.sequence % 100, "4")) for row in rows]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SampleStore]:
    made = open_store(str(tmp_path / "store"))
    yield made
    made.close()


async def _rescored(store: SampleStore, sums: Sums | None, tmp_path: Path, **more: Any) -> Rescored:
    what = {name: more.pop(name) for name in ("rubric", "scorer", "task_ids", "by") if name in more}
    given = {name: more.pop(name) for name in ("stop", "dry_run", "on_progress") if name in more}
    settings = Settings(store=store.url, journal=tmp_path / "journal", num_evaluation_workers=4, **more)
    with environments_at_hand([] if sums is None else [sums]):
        return await rescore(settings, store, Rescoring(Chosen(), "the scorer was wrong", **what), **given)


async def test_a_bug_in_a_scorer_costs_no_tokens_and_both_scores_stay(store: SampleStore, tmp_path: Path) -> None:
    await store.put_batch("b", _samples(6))
    before = (await store.scan()).frame
    would = await _rescored(store, Sums(4), tmp_path, dry_run=True)
    assert (would.samples, would.marks) == (6, [])
    told: list[tuple[int, int]] = []
    done = await _rescored(store, Sums(4), tmp_path, by="ada", on_progress=lambda *one: told.append(one))
    assert (done.samples, done.known, dict(done.left_out), done.stopped_by) == (6, 0, {}, "")
    (pair,) = done.pairs.values()
    assert (pair.samples, pair.changed, pair.mean_before, pair.mean_after) == (6, 6, 0.0, 1.0)
    assert told[-1] == (6, 6)
    after = (await store.scan()).frame
    assert after["score"].to_list() == [1.0] * 6
    assert after["why"].to_list() == ["it said 4"] * 6
    assert after["success"].all()
    assert after.drop("score", "success", "why").equals(before.drop("score", "success", "why"))
    assert (await store.scan(original=True)).frame.equals(before)
    assert {pair.mean_score for pair in (await store.summary(START + 50)).pairs} == {1.0}
    said = await store.query("select distinct scorer, marked_by, reason, score, verb from marks")
    ((scorer, *rest),) = said.rows
    assert rest == ["ada", "the scorer was wrong", 1.0, "rescore"]
    assert scorer.startswith("headgate ")


async def test_the_newest_score_holds_once_by_each_scorer_until_it_is_undone(
    store: SampleStore, tmp_path: Path
) -> None:
    await store.put_batch("b", _samples(3))
    await _rescored(store, Sums(4), tmp_path)
    again = await _rescored(store, Sums(5), tmp_path)
    assert (again.samples, again.known) == (0, 3)
    other = await _rescored(store, Sums(5), tmp_path, scorer="fix-2")
    assert (other.samples, other.known) == (3, 0)
    assert (await store.query("select avg(score) from samples")).rows == ((0.0,),)
    back = await _rescored(store, Sums(4), tmp_path)
    assert back.samples == 3
    assert (await store.query("select avg(score) from samples")).rows == ((1.0,),)
    undone = await store.invalidate(Invalidation(Chosen(), "as it was", unscore=True), START)
    assert undone.samples == 3
    assert (await store.scan()).frame.equals((await store.scan(original=True)).frame)
    assert (await store.invalidate(Invalidation(Chosen(), "as it was", unscore=True), START)).samples == 0


async def test_what_cannot_be_scored_keeps_its_score_and_says_why(store: SampleStore, tmp_path: Path) -> None:
    rows = _samples(7)
    nothing: dict[str, Any] = {"score": None, "why": ""}
    rows[1] = replace(rows[1], conversation="")
    rows[2] = replace(rows[2], **nothing, error_kind="provider_failure", error="503")
    rows[3] = replace(rows[3], conversation=_talk(3, "4").replace("after 1", "after one"))
    rows[4] = replace(rows[4], conversation=orjson.dumps(orjson.loads(_talk(4, "4"))[:3]).decode())
    rows[5] = replace(rows[5], conversation=_talk(5, "fail"))
    rows[6] = replace(rows[6], **nothing, error_kind="environment", error="a bug")
    await store.put_batch("b", rows)
    done = await _rescored(store, Sums(4), tmp_path)
    assert done.samples == 2
    assert done.left_out == {
        "its conversation is not stored": 1,
        "nothing to score: provider_failure": 1,
        "the environment now says something other than what the model replied to": 1,
        "the conversation ends before it is scored": 1,
        "environment gave no score: RuntimeError: no such number (test_rescoring.py, line 61)": 1,
    }
    frame = (await store.scan()).frame.sort("sequence")
    assert frame["score"].to_list() == [1.0, 0.0, None, 0.0, 0.0, 0.0, 1.0]
    assert frame["error_kind"].to_list() == [None, None, "provider_failure", None, None, None, None]


@pytest.mark.parametrize(
    ("sums", "says"),
    [
        (None, "environment 'own:sum' is not registered"),
        (Sums(4, replays=False), "own:sum scores no stored conversations: the same replies may end otherwise"),
    ],
    ids=["unknown", "replays-not"],
)
async def test_an_environment_that_cannot_is_refused_with_a_sentence(
    store: SampleStore, tmp_path: Path, sums: Sums | None, says: str
) -> None:
    await store.put_batch("b", _samples(2))
    done = await _rescored(store, sums, tmp_path)
    ((why, count),) = done.left_out.items()
    assert (done.samples, count, says in why) == (0, 2, True), why
    with pytest.raises(errors.InvalidInputError, match="a reason has"):
        await rescore(Settings(), store, Rescoring(Chosen(), ""))


async def test_a_kill_in_the_middle_loses_no_score_and_doubles_none(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.run.rescoring._FLUSH_ROWS", 10)
    for number in range(4):
        await store.put_batch(f"b{number}", _samples(10, first=10 * number))
    written = 0

    class Dying(FolderObjects):
        def put_many(self, given: Any) -> None:
            nonlocal written
            if given[0][0].startswith(MARKS):
                written += 1
                if written > 2:
                    raise errors.StoreError("killed")
            super().put_many(given)

    first, second = Sums(4), Sums(4)
    with pytest.raises((errors.StoreError, ExceptionGroup)):
        await _rescored(SampleStore(Dying(tmp_path / "store")), first, tmp_path)
    ((kept,),) = (await store.query("select count(*) from samples where score = 1")).rows
    assert 20 <= kept < 40
    done = await _rescored(store, second, tmp_path)
    assert (done.samples, done.known, second.scored) == (40 - kept, kept, 40 - kept)
    assert (await store.query("select count(*), count(distinct task_id) from marks")).rows == ((40, 40),)
    assert (await _rescored(store, Sums(4), tmp_path)).known == 40


async def test_it_ends_when_it_is_asked_to_and_samples_that_come_meanwhile_wait(
    store: SampleStore, tmp_path: Path
) -> None:
    await store.put_batch("b", _samples(30))
    stop = asyncio.Event()

    def told(done: int, total: int) -> None:
        if done == 5:
            stop.set()

    done = await _rescored(store, Sums(4), tmp_path, stop=stop, on_progress=told)
    assert 5 <= done.samples < 15
    assert done.stopped_by == "stopped by request"
    await store.put_batch("later", _samples(5, first=30))
    assert (await _rescored(store, Sums(4), tmp_path)).samples == 35 - done.samples


RUBRIC = Rubric(name="short", criteria=(Criterion(text='it says "4"'),))


async def test_a_judge_scores_by_a_rubric_within_its_budget(store: SampleStore, tmp_path: Path) -> None:
    await store.put_batch("b", _samples(4))
    async with serve() as endpoint:
        judged = {"judge_model": "baseline-judge", "judge_url": endpoint.base_url, "judgements": 1, "judge_parallel": 1}
        spent = await _rescored(store, Sums(5), tmp_path, rubric=RUBRIC, **judged, judge_daily_tokens=1_000)
        assert "tokens in 24 h" in spent.stopped_by, spent
        assert 0 < spent.samples < 4
        more = await _rescored(store, Sums(5), tmp_path, rubric=RUBRIC, **judged, judge_daily_tokens=1_000)
        assert (more.samples, more.known) == (0, spent.samples)  # the day's budget is the campaign's, whoever spends it
        done = await _rescored(store, Sums(5), tmp_path, rubric=RUBRIC, **judged)
    assert (done.samples, done.known, dict(done.left_out)) == (4 - spent.samples, spent.samples, {})
    ((scorer, score, count),) = (await store.query("select scorer, score, count(*) from marks group by all")).rows
    assert (scorer, score, count) == (f"judge:baseline-judge@main by rubric {RUBRIC.label}", 1.0, 4)
    needs = await _rescored(store, None, tmp_path)
    assert needs.samples == 0


async def test_a_judge_that_does_not_answer_is_named_with_its_address_and_not_asked_for_every_sample(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.run.rescoring.MOST_UNASKED", 3)
    await store.put_batch("b", _samples(40))
    address = "http://127.0.0.1:9/v1"
    judged = {"judge_model": "baseline-judge", "judge_url": address, "judgements": 1, "judge_parallel": 2}
    done = await _rescored(store, Sums(5), tmp_path, rubric=RUBRIC, request_attempts=1, **judged)
    why = f"judge judge:baseline-judge@main at {address} could not be asked: connection"
    assert done.stopped_by.startswith(f"{why}, 3 times in a row: "), done
    assert set(done.left_out) == {why}
    assert done.left_out[why] < 10


@pytest.mark.parametrize(
    "name", ["affine:sat-hard", "affine:abd", "agentgym:babyai", "agentgym:textcraft", "agentgym:webshop"]
)
async def test_bundled_environments_give_the_same_score_again(store: SampleStore, tmp_path: Path, name: str) -> None:
    played, rng = environment(name), random.Random(name)
    rows = []
    for index, kind in enumerate(("solver", "greedy", "random")):
        seed = seed_of(name, index)

        async def chat(messages: Any, kind: Any = kind, index: int = index, seed: int = seed) -> ChatReply:
            return ChatReply(await played.baseline(kind, index, seed, messages, rng))

        result = await converse(played, index, seed, chat)
        said = orjson.dumps([(m.role, m.content) for m in result.messages]).decode()
        about = {"index": index, "seed": seed, "why": result.why, "success": result.success, "score": result.score}
        task_id = task_id_of("org/a@main", name, index, "sample", "main")
        rows.append(replace(sample(index, environment=name), task_id=task_id, conversation=said, **about))
    await store.put_batch("b", rows)
    done = await _rescored(store, None, tmp_path)
    assert (done.samples, dict(done.left_out)) == (3, {})
    assert sum(pair.changed for pair in done.pairs.values()) == 0
    assert (await store.scan()).frame.equals((await store.scan(original=True)).frame)
