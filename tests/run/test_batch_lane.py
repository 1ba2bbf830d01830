"""Requests in batches: asked once, whoever fails, and finished the ordinary way where a batch does not answer them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from headgate.config import Settings
from headgate.core import Message, Model, Secret, events
from headgate.environments import EnvironmentSpec, ForJudge, Judgement, Score
from headgate.net.listener import free_port
from headgate.run import batch_lane
from headgate.run.assembly import run_source
from headgate.run.judging import Judging, judge_of
from headgate.run.matrix import MatrixTaskProvider
from headgate.run.status import RunResult
from headgate.sampling import Roster, RosterSource, StaticRoster
from headgate.storage import open_store
from headgate.telemetry import Recorded
from tests.run.batch_provider import Handler, Provider, lines_of, provider

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TASKS = 12


class _Question:
    def __init__(self, index: int) -> None:
        self.opening = (Message("user", f"question {index}"),)
        self.wanted = f"answer to question {index}"

    async def answer(self, reply: str) -> Score:
        return Score(float(reply == self.wanted), success=True, why=reply)

    async def close(self) -> None:
        """Nothing is open."""


class Questions:
    spec = EnvironmentSpec(name="test:asks", summary="", licence="", daily_rate=100, data_length=500, max_rounds=1)

    async def open(self, index: int, seed: int) -> _Question:
        return _Question(index)

    async def baseline(self, *_: object) -> str:
        return ""


class _Essay(_Question):
    async def answer(self, reply: str) -> Score | ForJudge:  # type: ignore[override]
        return ForJudge(((Message("user", f"is it good: {reply}"),),))


class Essays(Questions):
    spec = replace(Questions.spec, name="test:essays", needs_judge=True)

    async def open(self, index: int, seed: int) -> _Essay:
        return _Essay(index)

    def judgement(self, reply: str) -> Judgement | None:
        return Judgement(1.0, reply)

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        return Score(1.0, success=True, why=judgements[0].why)


@pytest.fixture
async def served() -> AsyncIterator[Provider]:
    async with provider() as made:
        yield made


class Site:
    """A campaign's journal and store, and what its runs told."""

    def __init__(self, folder: Path, served: Provider) -> None:
        self.folder, self.served = folder, served
        self.told: list[events.Event] = []
        self.loop, self.submitted = asyncio.get_running_loop(), asyncio.Event()
        self.store = open_store(str(folder / "samples"))
        self.handlers = dict.fromkeys((events.BatchEnded, events.BatchSubmitted), self._note)

    def _note(self, recorded: Recorded[Any]) -> None:
        self.told.append(recorded.event)
        self.loop.call_soon_threadsafe(self.submitted.set)

    def close(self) -> None:
        """A sink of events."""

    async def run(
        self,
        *,
        tasks: int = TASKS,
        lane: str = "batch",
        at: Provider | None = None,
        key: str = "",
        roster: RosterSource | None = None,
        **more: Any,
    ) -> RunResult:
        changes = {"lane_batch_wait_s": 0.2, "lane_poll_s": 0.02, "num_evaluation_workers": 4, "status_interval_s": 0.2}
        watch = {name: more.pop(name) for name in ("stop", "duration_s") if name in more}
        settings = Settings(journal=self.folder / "journal", sink_max_wait=0.2, **{**changes, **more})
        is_judged = bool(settings.judge_model)
        model = Model("m", base_url=(at or self.served).base_url, api_key=Secret(key), lane=lane)
        environment: Questions = Essays() if is_judged else Questions()
        name = environment.spec.name
        return await run_source(
            settings,
            roster=roster or StaticRoster([model]),
            environments={name: environment},
            store=self.store,
            source=MatrixTaskProvider([name], tasks),
            judging=Judging(judge_of(settings)) if is_judged else None,
            stop_when_idle=True,
            sinks=[self],
            **watch,
        )

    async def scores(self) -> list[tuple[int, float]]:
        frame = (await self.store.scan()).frame
        return sorted(zip(frame["sequence"].to_list(), frame["score"].to_list(), strict=True))

    @property
    def ends(self) -> list[events.BatchEnded]:
        return [one for one in self.told if isinstance(one, events.BatchEnded)]


@pytest.fixture
async def site(tmp_path: Path, served: Provider) -> Site:
    return Site(tmp_path, served)


ONCE = {f"question {n}": 1 for n in range(TASKS)}
SCORED = [(n, 1.0) for n in range(TASKS)]


async def test_all_samples_come_from_batches_and_hold_no_worker_meanwhile(site: Site) -> None:
    result = await site.run(lane_batch_requests=5, num_evaluation_workers=1)
    assert (result.scored, await site.scores()) == (TASKS, SCORED)
    assert (site.served.batched, +site.served.now) == (ONCE, {})
    assert sum(end.answered for end in site.ends) == TASKS
    assert max(end.requests for end in site.ends) == 5
    assert (await site.store.scan()).frame["request_wait_s"].min() > 0


async def test_an_environment_or_a_model_can_ask_at_once(site: Site) -> None:
    await site.run(lane="now", lanes="batch")
    assert (+site.served.batched, site.served.now) == ({}, ONCE)


async def _lost(http: web.Request, _: Handler) -> web.StreamResponse | None:
    is_about_one = http.path.startswith("/v1/batches/")
    return web.json_response({"error": {"message": "no such batch"}}, status=404) if is_about_one else None


async def _twice_and_others(http: web.Request, handler: Handler) -> web.StreamResponse | None:
    if not http.path.endswith("/content"):
        return None
    lines = lines_of(await handler(http))
    others = [{**line, "custom_id": f"other-{n}"} for n, line in enumerate(lines)]
    garbage = [b"{", b"", b"[]", b'{"custom_id": 3}', b"x" * 100]
    body = [json.dumps(line).encode() for line in [*lines, *others, *lines]] + garbage
    return web.Response(body=b"\n".join(body))


async def _only_others(http: web.Request, handler: Handler) -> web.StreamResponse | None:
    if not http.path.endswith("/content"):
        return None
    lines = [{**line, "custom_id": "another"} for line in lines_of(await handler(http))]
    return web.Response(body=b"\n".join(json.dumps(line).encode() for line in lines))


async def _not_there(http: web.Request, _: Handler) -> web.StreamResponse | None:
    return web.Response(status=404) if "/batches" in http.path or "/files" in http.path else None


async def _no_json(http: web.Request, _: Handler) -> web.StreamResponse | None:
    return web.Response(body=b"<html>") if "/batches" in http.path else None


async def _expired(http: web.Request, handler: Handler) -> web.StreamResponse | None:
    if not http.path.startswith("/v1/batches/"):
        return None
    answer = await handler(http)
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    batch = json.loads(answer.body)
    return web.json_response({**batch, "status": "expired", "output_file_id": None})


WRONG = {
    "it loses every batch": (_lost, "lost", 0),
    "results come twice, with those of others and garbage": (_twice_and_others, "completed", TASKS),
    "results are of others": (_only_others, "completed", 0),
    "there are no such routes": (_not_there, "refused", 0),
    "batches are no JSON": (_no_json, "refused", 0),
    "batches expire": (_expired, "expired", 0),
}


@pytest.mark.parametrize("case", WRONG)
async def test_whatever_a_provider_does_each_sample_is_scored_once(
    site: Site, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_lane, "SUBMIT_PATIENCE_S", 0.2)
    monkeypatch.setattr(batch_lane, "PAID_PATIENCE_S", 0.2)
    site.served.wrong, status, answered = WRONG[case]
    result = await site.run()
    assert (result.scored, await site.scores()) == (TASKS, SCORED)
    (end, *_) = site.ends
    assert end.status == status, end
    assert sum(one.answered for one in site.ends) == answered
    assert site.served.now == ({} if answered else ONCE)
    if case.startswith("results"):
        assert sum(one.ignored for one in site.ends) >= TASKS


async def test_what_a_batch_does_not_answer_is_asked_the_ordinary_way(site: Site) -> None:
    site.served.fails = lambda text: text.endswith(("3", "5"))
    assert (await site.run()).scored == TASKS
    assert site.served.batched == ONCE
    assert site.served.now == {"question 3": 1, "question 5": 1}


@pytest.mark.parametrize(("of", "status"), [("batches", 404), ("files", 404), ("files", 401)])
async def test_what_is_paid_is_not_asked_again_while_its_provider_may_still_give_it(
    site: Site, of: str, status: int
) -> None:
    refusals = 0

    async def wrong(http: web.Request, _: Handler) -> web.StreamResponse | None:
        nonlocal refusals
        if http.method != "GET" or not http.path.startswith(f"/v1/{of}/") or refusals == 6:
            return None
        refusals += 1
        return web.Response(status=status)

    site.served.wrong = wrong
    assert (await site.run()).scored == TASKS
    assert (site.served.batched, +site.served.now, refusals) == (ONCE, {}, 6)


async def test_a_model_that_may_have_no_batches_keeps_no_other_model_from_them(site: Site) -> None:
    has_come = asyncio.Event()

    async def wrong(http: web.Request, _: Handler) -> web.StreamResponse | None:
        if http.headers["Authorization"] == "Bearer good":
            has_come.set()
        elif http.path == "/v1/files":
            return web.Response(status=403)
        else:
            await has_come.wait()
        return None

    class Growing:
        async def load(self) -> Roster:
            keys = ("bad", "good") if site.submitted.is_set() else ("bad",)
            made = (Model(key, base_url=site.served.base_url, api_key=Secret(key), lane="batch") for key in keys)
            return Roster(tuple(replace(model, uid=uid) for uid, model in enumerate(made)))

    site.served.wrong = wrong
    await site.run(roster=Growing(), roster_refresh_s=0.1, num_evaluation_workers=20)
    assert (site.served.batched, site.served.now) == (ONCE, ONCE)


async def test_results_that_break_off_are_read_again_and_none_is_asked_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_lane, "_CHUNK", 4)  # so that some are kept before the end, and some are not
    readings = 0

    async def wrong(http: web.Request, handler: Handler) -> web.StreamResponse | None:
        nonlocal readings
        if not http.path.endswith("/content"):
            return None
        readings += 1
        if readings > 2:
            return None
        answer = await handler(http)
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        lines = answer.body.splitlines(keepends=True)
        broken = web.StreamResponse(headers={"Content-Length": str(len(answer.body))})
        await broken.prepare(http)
        await broken.write(b"".join(lines[: 4 * readings - 1]))
        assert http.transport is not None
        http.transport.close()
        return broken

    site.served.wrong = wrong
    assert (await site.run()).scored == TASKS
    assert (site.served.batched, +site.served.now) == (ONCE, {})
    (end,) = site.ends
    assert (readings, end.answered, end.left, end.ignored) == (3, TASKS, 0, 0)


async def test_a_creation_whose_answer_is_lost_is_found_again_and_not_repeated(site: Site) -> None:
    lost = 0

    async def wrong(http: web.Request, handler: Handler) -> web.StreamResponse | None:
        nonlocal lost
        if http.method != "POST" or http.path != "/v1/batches" or lost:
            return None
        lost += 1
        await handler(http)
        return web.Response(status=502)

    site.served.wrong = wrong
    assert (await site.run()).scored == TASKS
    assert (site.served.batched, +site.served.now) == (ONCE, {})
    assert site.served.calls["GET batches"] > 0


async def _in_progress(http: web.Request, handler: Handler) -> web.StreamResponse | None:
    """No batch ever ends."""
    if not http.path.startswith("/v1/batches/"):
        return None
    answer = await handler(http)
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    return web.json_response({**json.loads(answer.body), "status": "in_progress"})


async def test_it_is_told_where_a_sample_is_and_a_batch_that_nobody_wants_any_more_is_cancelled(site: Site) -> None:
    cancelled: set[str] = set()

    async def wrong(http: web.Request, handler: Handler) -> web.StreamResponse | None:
        if http.path.endswith("/cancel"):
            cancelled.add(http.path.split("/")[3])
            return web.json_response({"id": http.path.split("/")[3], "status": "cancelling"})
        return await _in_progress(http, handler)

    site.served.wrong = wrong
    port = free_port()
    running = asyncio.create_task(site.run(enable_monitoring=True, monitor_port=port, lane_batch_requests=TASKS))
    async with asyncio.timeout(30):
        await site.submitted.wait()
    (submitted,) = (one for one in site.told if isinstance(one, events.BatchSubmitted))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        async with http.get("/status/tasks") as answer:
            tasks = (await answer.json())["tasks"]
        assert {(task["state"], task["model"]) for task in tasks} == {("batch", "m@main")}
        async with http.get(f"/status/tasks/{tasks[0]['task_id']}") as answer:
            said = (await answer.json())["task"]
        assert said["gate"] == "batch"
        assert re.fullmatch(rf"in batch {submitted.batch} since .* UTC, \d+ of {TASKS} done", said["reason"]), said
        async with http.get("/status") as answer:
            (shown,) = (await answer.json())["batches"]
        assert (shown["batch"], shown["requests"]) == (submitted.batch, TASKS)
        async with http.post("/controls", json={"verb": "withdraw"}) as answer:
            assert answer.status == 200, await answer.text()
            assert f"queued ones ({TASKS}) are withdrawn" in await answer.text()
    result = await running
    assert (result.samples, result.open_tasks, +site.served.now) == (0, 0, {})
    assert cancelled == {submitted.batch}


async def test_a_run_that_ends_leaves_its_batches_to_the_next_one(site: Site) -> None:
    site.served.wrong = _in_progress
    first = await site.run(stop=site.submitted)
    assert (first.scored, first.open_tasks) == (0, TASKS)
    site.served.wrong = None
    second = await site.run()
    assert (second.scored, await site.scores()) == (TASKS, SCORED)
    assert (site.served.batched, +site.served.now) == (ONCE, {})
    assert site.served.calls["POST batches"] == 1


async def test_a_batch_of_a_model_that_moved_is_followed_where_it_was_submitted(site: Site) -> None:
    site.served.wrong = _in_progress
    await site.run(stop=site.submitted, key="the key of both")
    site.served.wrong = None
    async with provider() as other:
        second = await site.run(at=other, key="the key of both")
    assert (second.scored, await site.scores()) == (TASKS, SCORED)
    assert (site.served.batched, +site.served.now) == (ONCE, {})
    assert +other.calls == {}


async def test_no_key_is_told_to_the_place_that_a_model_with_another_key_has_left(site: Site) -> None:
    keys: set[str] = set()

    async def wrong(http: web.Request, handler: Handler) -> web.StreamResponse | None:
        keys.add(http.headers.get("Authorization", ""))
        return await _in_progress(http, handler)

    site.served.wrong = wrong
    await site.run(stop=site.submitted, key="the key of one")
    async with provider() as other:
        second = await site.run(at=other, key="the key of another")
    assert keys == {"Bearer the key of one"}
    assert (second.scored, await site.scores(), other.now) == (TASKS, SCORED, ONCE)
    (end,) = site.ends
    assert end.status == "moved"
    assert end.reason == f"it lies at {site.served.base_url}, which is not told the key of {other.base_url}"


async def test_a_key_that_changes_is_used_for_batches_under_way(site: Site) -> None:
    """The old one may be refused from that moment on."""

    async def wrong(http: web.Request, handler: Handler) -> web.StreamResponse | None:
        if not http.path.startswith("/v1/batches/") or http.headers["Authorization"] == "Bearer the new one":
            return None
        return web.Response(status=401)

    class Rotated:
        async def load(self) -> Roster:
            key = Secret("the new one" if site.submitted.is_set() else "the old one")
            return Roster((Model("m", base_url=site.served.base_url, api_key=key, lane="batch"),))

    site.served.wrong = wrong
    result = await site.run(roster=Rotated(), roster_refresh_s=0.1)
    assert (result.scored, site.served.batched, +site.served.now) == (TASKS, ONCE, {})


async def test_answers_whose_judgements_are_in_a_batch_outlive_their_run(site: Site) -> None:
    judge = {"judge_model": "j", "judge_url": site.served.base_url, "judge_lane": "batch"}
    site.served.wrong = _in_progress
    first = await site.run(stop=site.submitted, lane="now", **judge)
    assert (first.scored, first.open_tasks) == (0, TASKS)
    site.served.wrong = None
    second = await site.run(lane="now", **judge)
    assert (second.scored, await site.scores()) == (TASKS, SCORED)
    assert site.served.now == ONCE
    assert site.served.batched == {f"is it good: answer to {question}": 1 for question in ONCE}
