"""A simulated day with the lane `auto`: what can wait goes in batches, exact in number, and nothing is late."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.core import DAY_S, ChatError, ChatReply, ErrorKind, Message, Model, Spending, events
from headgate.models import BatchStatus
from headgate.run import EndpointChats, RequestSide, Run, RunPlan
from headgate.run.batch_lane import BatchLane
from headgate.sampling import StaticRoster
from headgate.simulation import LoopClock, MemoryStore, free_environments, run_virtual
from headgate.storage import Journal

pytestmark = pytest.mark.usefixtures("day_long")

START = 1_767_225_600.0
RATES = {"test:a": 96.0, "test:b": 192.0}


class Provider:
    """Answers at once, and batches after hours; a few take longer than anybody waits."""

    takes_s = 0.0
    """Of each batch; 0 draws it."""

    def __init__(self, clock: LoopClock, down_s: float) -> None:
        self.clock, self.rng = clock, random.Random(7)
        self.up_at = START + down_s
        self.asked: Counter[str] = Counter()
        self.batched: Counter[str] = Counter()
        self.files: dict[str, list[str]] = {}
        self.batches: dict[str, tuple[str, str, float]] = {}

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        self.asked[str(task_header)] += 1
        await self.clock.sleep(5.0)
        return ChatReply("right", 10, 5, 5.0)

    async def upload(self, model: Model, key: str, data: bytes) -> str:
        if self.clock.wall() < self.up_at:
            raise ChatError(ErrorKind.PROVIDER_FAILURE, "HTTP 500", status=500)
        self.files[f"file-{key}"] = [json.loads(line)["custom_id"] for line in data.splitlines()]
        return f"file-{key}"

    async def create(self, model: Model, key: str, file_id: str) -> BatchStatus:
        takes_s = 40 * 3600.0 if self.rng.random() < 0.04 else self.rng.uniform(60.0, 8 * 3600.0)
        takes_s = self.takes_s or takes_s
        self.batches[f"batch-{key}"] = (key, file_id, self.clock.wall() + takes_s)
        self.batched.update(self.files[file_id])
        return await self.status(model, f"batch-{key}")

    async def find(self, model: Model, key: str) -> BatchStatus | None:
        return None

    async def status(self, model: Model, batch_id: str) -> BatchStatus:
        _, file_id, ready_at = self.batches[batch_id]
        is_ready = self.clock.wall() >= ready_at
        total = len(self.files[file_id])
        return BatchStatus(batch_id, "completed" if is_ready else "in_progress", total, total * is_ready, (file_id,))

    async def results(self, model: Model, batch: BatchStatus) -> AsyncIterator[tuple[str, ChatReply | None]]:
        for custom_id in self.files[batch.files[0]]:
            yield custom_id, ChatReply("right", 10, 5, lane="batch")

    async def cancel(self, model: Model, batch_id: str) -> None:
        """It goes on all the same."""


BATCH_COST = 15  # 10 tokens at 1.0 and 5 at 4.0 per million, at half the price
NOW_COST = 30
OPTIONS = (("max_tokens", 5),)


def day(
    folder: Path,
    lane: str,
    hours: float,
    down_s: float = 0.0,
    *,
    after: tuple[MemoryStore, Provider, list[events.Event]] | None = None,
    discount: float = 0.5,
    daily_cost: float | None = None,
) -> tuple[MemoryStore, Provider, list[events.Event]]:
    told: list[events.Event] = []
    store = MemoryStore() if after is None else after[0]

    async def main() -> Provider:
        clock = LoopClock(START if after is None else after[1].clock.wall())
        provider = Provider(clock, down_s) if after is None else after[1]
        provider.clock = clock
        row = {"model": "m", "input": 1.0, "output": 4.0, "batch_discount": discount}
        prices = [row | {"model": f"m{n}"} for n in range(3)]
        table = folder / "prices.json"
        table.write_text(json.dumps({"date": "2025-12-31", "source": "a list", "prices": prices}))
        settings = Settings(
            journal=folder,
            prices=str(table),
            daily_cost=daily_cost,
            low_sample_threshold=0,
            lanes=lane,
            lane_batch_wait_s=1_800,
            lane_poll_s=120,
            early_stop=False,
            status_interval_s=600,
        )
        batches = BatchLane(settings, provider, clock=clock, emit=told.append)
        requests = RequestSide(settings, clock=clock, emit=told.append, batches=batches)
        roster = [Model(f"m{n}", base_url="http://127.0.0.1:1/v1", uid=n, options=OPTIONS) for n in range(3)]
        chats = EndpointChats(provider, requests, clock=clock)
        plan = RunPlan(
            settings,
            StaticRoster(roster),
            free_environments(RATES),
            store,
            chats,
            requests=requests,
            duration_s=hours * 3600.0,
        )
        await Run(plan, clock=clock, emit=told.append, inline=True).run()
        return provider

    return store, run_virtual(main()), told


def test_what_can_wait_goes_in_batches_and_nothing_is_later_than_its_due_day(tmp_path: Path) -> None:
    store, provider, told = day(tmp_path, "auto", 36.0)
    in_batches = sum(sample.lane == "batch" for sample in store.samples)
    assert max(Counter(sample.task_id for sample in store.samples).values()) == 1
    assert max(provider.batched.values()) == max(provider.asked.values()) == 1
    assert sum(provider.asked.values()) + in_batches == len(store.samples), "nothing is asked twice but what is overdue"
    assert in_batches >= 0.9 * len(store.samples)
    assert any(isinstance(one, events.BatchEnded) for one in told)
    assert {(sample.lane, sample.cost_micro) for sample in store.samples} == {("batch", BATCH_COST), ("now", NOW_COST)}
    pairs = {(sample.model, sample.environment) for sample in store.samples}
    assert len(pairs) == 6
    for model, environment in pairs:
        rows = sorted(
            (s.sequence, s.finished_at) for s in store.samples if (s.model, s.environment) == (model, environment)
        )
        in_time = [number for number, at in rows if at <= START + 36 * 3600.0]
        first_day = int(RATES[environment] * 12 / 24)  # due in the first half of the day: a day later it is all there
        assert in_time[:first_day] == list(range(first_day)), (model, environment)
        late = [n for n, at in rows if at > START + (n + 1) * DAY_S / RATES[environment] + DAY_S]
        assert not late, (model, environment, late)


def test_batches_that_fail_for_an_hour_hold_nothing_up_and_are_tried_again(tmp_path: Path) -> None:
    store, provider, told = day(tmp_path, "batch", 4.0, down_s=3_600.0)
    refused = [one for one in told if isinstance(one, events.BatchEnded) and one.status == "refused"]
    assert refused
    assert all("500" in one.reason for one in refused)
    assert all(one.seconds <= 1_800.0 for one in refused)
    assert sum(provider.asked.values()) == sum(sample.lane == "now" for sample in store.samples) > 0
    assert provider.batched, "after an hour they go in batches again"
    assert {sample.error_kind for sample in store.samples} == {None}


def spent_in(folder: Path, hours: float = 12.0) -> list[Spending]:
    """Return what a journal says was spent of each model."""
    journal = Journal(folder, "main")
    try:
        news = journal.exchange_spending({}, START + hours * 3600.0)
        return [spent for answer in news.values() for _, spent in answer.news]
    finally:
        journal.close()


def test_what_comes_back_from_a_batch_is_paid_for_once_whichever_run_asked_for_it(tmp_path: Path) -> None:
    first = day(tmp_path, "batch", 1.5)
    before = len(first[0].samples)
    assert before < first[1].batched.total(), "some lie in batches when the first run ends"
    store, provider, _ = day(tmp_path, "batch", 6.0, after=first)
    assert max(provider.batched.values()) == 1
    assert len(store.samples) > before > 0
    assert {(sample.lane, sample.cost_micro) for sample in store.samples} == {("batch", BATCH_COST)}
    came_back = sum(sample.cost_micro or 0 for sample in store.samples)
    assert sum(spent.cost_micro for spent in spent_in(tmp_path)) == came_back


def test_what_a_batch_answers_after_its_request_was_asked_at_once_is_paid_for_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Provider, "takes_s", 23.8 * 3600.0)
    store, provider, told = day(tmp_path, "auto", 30.0)
    ended = [one for one in told if isinstance(one, events.BatchEnded)]
    assert ended
    assert {one.answered for one in ended} == {0}, "its due day was over before"
    cost = sum(sample.cost_micro or 0 for sample in store.samples)
    assert cost == NOW_COST * provider.asked.total() > 0
    twice = sum(one.left for one in ended)
    assert sum(spent.cost_micro for spent in spent_in(tmp_path, 30.0)) == cost + BATCH_COST * twice


def test_requests_in_batches_hold_what_they_may_take_of_a_budget_in_money(tmp_path: Path) -> None:
    _, provider, told = day(tmp_path, "batch", 3.0, daily_cost=0.0003)
    assert 3 * 15 <= provider.batched.total() <= 3 * 300 / BATCH_COST, "of 108 that were due"
    assert any(isinstance(one, events.DailyBudgetSpent) for one in told)
    assert not provider.asked


def test_what_a_batch_leaves_unanswered_holds_nothing_of_the_budget_that_it_is_asked_with_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(self: Provider, _: Model, batch: BatchStatus) -> AsyncIterator[tuple[str, ChatReply | None]]:
        for custom_id in self.files[batch.files[0]]:
            yield custom_id, None

    monkeypatch.setattr(Provider, "takes_s", 6 * 3600.0)
    monkeypatch.setattr(Provider, "results", unanswered)
    store, _, _ = day(tmp_path, "batch", 20.0, daily_cost=0.0003)
    for model in range(3):
        spent = sum(sample.cost_micro or 0 for sample in store.samples if sample.model == f"m{model}@main")
        assert 300 - 2 * NOW_COST <= spent <= 300


@pytest.mark.parametrize("daily_cost", [0.0003, 0.00006])
def test_what_came_back_from_a_batch_is_a_sample_also_when_the_budget_is_used_up(
    tmp_path: Path, daily_cost: float
) -> None:
    store, provider, told = day(tmp_path, "batch", 12.0, daily_cost=daily_cost)
    answered = sum(one.answered for one in told if isinstance(one, events.BatchEnded))
    assert len(store.samples) == answered > 0
    assert {sample.cost_micro for sample in store.samples} == {BATCH_COST}
    assert provider.batched.total() * BATCH_COST <= 3 * daily_cost * 1e6


def test_what_came_back_before_a_kill_is_a_sample_of_the_next_run_also_when_the_budget_is_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Run, "_go_on", lambda _run, _task_id: None)
        first = day(tmp_path, "batch", 20.0, daily_cost=0.0003)
    answered = sum(one.answered for one in first[2] if isinstance(one, events.BatchEnded))
    assert not first[0].samples
    store, _, told = day(tmp_path, "batch", 1.0, after=first, daily_cost=0.0003)
    assert len(store.samples) == answered + sum(one.answered for one in told if isinstance(one, events.BatchEnded)) > 9


def test_auto_asks_at_once_where_batches_are_not_cheaper(tmp_path: Path) -> None:
    store, provider, _ = day(tmp_path, "auto", 2.0, discount=0.0)
    assert not provider.batched
    assert {(sample.lane, sample.cost_micro) for sample in store.samples} == {("now", NOW_COST)}
