"""Campaigns with budgets of 24 h: nothing beyond them is sent, nothing is lost, and it goes on. In virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import ChatError, ChatReply, ErrorKind, Message, Model, ModelBudget, Price
from headgate.core.events import DailyBudgetFreed, DailyBudgetSpent, Event, TaskDeferred, UsageMissing
from headgate.run import EndpointChats, RequestSide, Run, RunPlan, RunResult
from headgate.run.matrix import MatrixTaskProvider
from headgate.sampling import StaticRoster, TaskProvider
from headgate.simulation import LoopClock, MemoryStore, free_environments, run_virtual

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
PER_REQUEST = 100


class Metered:
    """A provider that counts what it was sent: 80 prompt and 20 completion tokens a request, in 5 s."""

    def __init__(self, *, reports_usage: bool = True, fails: Callable[[float], bool] = lambda _at: False) -> None:
        self._reports_usage = reports_usage
        self._fails = fails
        self.sent: list[tuple[float, str]] = []

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        at = asyncio.get_running_loop().time()
        self.sent.append((at, model.name))
        await asyncio.sleep(5.0)
        if self._fails(at):
            raise ChatError(ErrorKind.BAD_REQUEST, "HTTP 400", status=400)
        tokens = (80, 20) if self._reports_usage else (0, 0)
        return ChatReply("right", *tokens, latency_s=5.0)

    def most_in_a_day(self, name: str) -> int:
        """The most requests that any 24 h held."""
        most, day = 0, deque[float]()
        for at in (at for at, model in self.sent if model == name):
            day.append(at)
            while day[0] <= at - DAY_S:
                day.popleft()
            most = max(most, len(day))
        return most


class BudgetWorld:
    """One journal and store, and the campaigns in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.events: list[Event] = []
        self.campaign: Run | None = None

    def run(
        self,
        roster: Sequence[Model],
        provider: Metered,
        *,
        start_s: float = 0.0,
        duration_s: float,
        rate_per_day: float = 2_400.0,
        during: Callable[[Run, LoopClock], Any] | None = None,
        tasks: TaskProvider | None = None,
        **settings: Any,
    ) -> RunResult:
        async def main() -> RunResult:
            clock = LoopClock(1_767_225_600.0 + start_s)
            rates = {"test:one": rate_per_day / 2, "test:two": rate_per_day / 2}
            self.campaign = self._campaign(roster, provider, rates, clock, duration_s, settings, tasks)
            async with asyncio.TaskGroup() as group:
                beside = group.create_task(during(self.campaign, clock)) if during is not None else None
                result = await self.campaign.run()
                if beside is not None:
                    beside.cancel()
            return result

        return run_virtual(main())

    def run_windows(
        self, roster: Sequence[Model], provider: Metered, *, windows: int, duration_s: float, rate_per_day: float
    ) -> list[RunResult]:
        """Run a process per environment, window after window, as deployments do: none begins when the other does."""

        async def run_one(environment: str, first_s: float, clock: LoopClock) -> list[RunResult]:
            await clock.sleep(first_s)
            rates = {environment: rate_per_day / 2}
            campaigns = (self._campaign(roster, provider, rates, clock, duration_s, {}) for _ in range(windows))
            return [await campaign.run() for campaign in campaigns]

        async def main() -> list[RunResult]:
            clock = LoopClock(1_767_225_600.0)
            names = ("test:one", "test:two")
            done = await asyncio.gather(*(run_one(name, 60.0 * n, clock) for n, name in enumerate(names)))
            return [result for results in done for result in results]

        return run_virtual(main())

    def _campaign(
        self,
        roster: Sequence[Model],
        provider: Metered,
        rates: dict[str, float],
        clock: LoopClock,
        duration_s: float,
        settings: dict[str, Any],
        tasks: TaskProvider | None = None,
    ) -> Run:
        chosen = Settings(
            journal=self.folder,
            batch_flush_interval=60,
            status_interval_s=600,
            low_sample_threshold=0,
            drain_timeout_s=60,
            early_stop=False,
            **settings,
        )
        requests = RequestSide(chosen, clock=clock, emit=self.events.append)
        plan = RunPlan(
            chosen,
            StaticRoster(roster),
            free_environments(rates, data_length=100_000),
            self.store,
            EndpointChats(provider, requests, clock=clock),
            requests=requests,
            duration_s=duration_s,
            provider=tasks,
        )
        return Run(plan, clock=clock, emit=self.events.append, inline=True)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]


@pytest.fixture
def world(tmp_path: Path, day_long: None) -> BudgetWorld:
    return BudgetWorld(tmp_path / "journal")


def model(name: str = "alpha", **fields: Any) -> Model:
    return Model(name, uid=sum(map(ord, name)), base_url=f"http://{name}/v1", **fields)


def limited(name: str = "alpha", tokens: int = 40_000, **fields: Any) -> Model:
    return model(name, budget=ModelBudget(daily_tokens=tokens), **fields)


def test_no_24_hours_hold_more_than_the_budget_and_the_other_model_is_sampled_as_ever(world: BudgetWorld) -> None:
    provider = Metered()
    world.run([limited(tokens=10_000), model("beta")], provider, duration_s=1.5 * DAY_S, rate_per_day=400.0)
    assert provider.most_in_a_day("alpha") <= 100
    alpha = [s for s in world.store.samples if s.model == "alpha@main"]
    assert len(alpha) >= 1.5 * 100 * 0.9, "and hardly less than it allows"
    assert {s.error_kind for s in alpha} == {None}
    beta = sum(s.model == "beta@main" for s in world.store.samples)
    assert beta == pytest.approx(1.5 * 400, rel=0.01)


@pytest.mark.long
def test_processes_of_one_journal_have_one_budget_between_them(world: BudgetWorld) -> None:
    provider = Metered()
    roster = [limited(tokens=20_000), model("beta")]
    world.run_windows(roster, provider, windows=5, duration_s=HOUR_S, rate_per_day=1_600.0)
    assert provider.most_in_a_day("alpha") <= 200
    alpha = [s for s in world.store.samples if s.model == "alpha@main"]
    assert {s.error_kind for s in alpha} == {None}
    assert len(alpha) >= 200 * 0.95, "and hardly less than it allows"
    shares = {name: sum(s.environment == name for s in alpha) / len(alpha) for name in ("test:one", "test:two")}
    assert min(shares.values()) > 0.4, "none of them takes it from the other"
    beta = sum(s.model == "beta@main" for s in world.store.samples)
    assert beta == pytest.approx(1_600 * 5 / 24, rel=0.05)


def test_a_stop_is_told_with_its_reason_and_its_end_and_no_task_is_lost_or_reordered_by_it(world: BudgetWorld) -> None:
    provider = Metered()
    world.run([limited()], provider, duration_s=DAY_S + 6 * HOUR_S)
    first, freed = world.of(DailyBudgetSpent)[0], world.of(DailyBudgetFreed)[0]
    assert (first.model, first.limit, first.allowed) == ("alpha@main", "daily_tokens", 40_000)
    assert 39_000 < first.used <= 40_000, "what is in flight counts"
    assert first.reason.startswith("alpha@main has used or promised ")
    assert " of 40 000 tokens in 24 h, resumes at 2026-01-02 00:" in first.reason
    assert freed.held_for_s == pytest.approx(20 * HOUR_S, rel=0.05), "four hours of samples, until they are a day old"
    told = [len(world.of(kind)) for kind in (DailyBudgetSpent, DailyBudgetFreed)]
    assert told == [2, 1], "the rests of minutes in between, as the day before is forgotten, are told to nobody"
    for environment in ("test:one", "test:two"):
        kept = [s for s in world.store.samples if s.environment == environment]
        numbers = [s.sequence for s in sorted(kept, key=lambda s: s.started_at)]
        assert numbers == list(range(len(numbers)))


def test_the_status_and_why_say_how_much_is_used_and_when_it_goes_on(world: BudgetWorld) -> None:
    seen: dict[str, Any] = {}

    async def look(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(8 * HOUR_S)
        seen["status"] = campaign.status().models[0]
        task = next(iter(campaign._parts.dispatcher.queue.items()), None)
        seen["why"] = None if task is None else await campaign.inquiry.explain(task.task_id)
        seen["next"] = campaign.inquiry.next_due(seen["status"].model, "test:one")

    world.run([limited(max_parallel=1)], Metered(), duration_s=9 * HOUR_S, during=look, rate_per_day=30_000.0)
    status = seen["status"]
    assert status.is_paused
    assert "of 40 000 tokens in 24 h, resumes at 2026-01-02 00:0" in status.pause_reason
    assert status.pause_until is not None
    (budget,) = status.budgets
    assert (budget.name, budget.held, budget.limit) == ("daily_tokens", 0, 40_000)
    assert 39_000 < budget.used <= 40_000
    assert seen["why"].gate == "daily_budget"
    assert seen["why"].reason == status.pause_reason
    assert seen["why"].until == status.pause_until
    assert seen["next"].gate == "daily_budget"
    assert (seen["next"].reason, seen["next"].until) == (status.pause_reason, status.pause_until)


def test_a_restart_knows_what_was_spent_before_also_what_only_the_spool_has(world: BudgetWorld) -> None:
    provider = Metered()
    world.store.is_down = True
    world.run([limited()], provider, duration_s=2 * HOUR_S)
    assert world.store.samples == []
    world.store.is_down = False
    first = len(provider.sent)
    assert 150 < first < 400
    again = Metered()
    world.run([limited()], again, start_s=3 * HOUR_S, duration_s=10 * HOUR_S)
    assert 400 - first - 6 <= len(again.sent) <= 400 - first
    third = Metered()
    world.run([limited()], third, start_s=14 * HOUR_S, duration_s=4 * HOUR_S)
    assert len(third.sent) <= 400 - first - len(again.sent), "hardly anything of the budget is left"


def test_requests_that_fail_count_as_requests_and_hold_nothing(world: BudgetWorld) -> None:
    provider = Metered(fails=lambda at: int(at) % 2 == 0)
    only_requests = model(budget=ModelBudget(daily_requests=50))
    seen: list[Any] = []

    async def look(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(5 * HOUR_S)
        seen.extend(campaign.status().models[0].budgets)

    world.run([only_requests], provider, duration_s=6 * HOUR_S, during=look)
    assert len(provider.sent) == 50
    assert [(b.name, b.used, b.held) for b in seen] == [("daily_requests", 50, 0)]


def test_cost_is_a_budget_by_the_prices_of_the_roster(world: BudgetWorld) -> None:
    provider = Metered()
    priced = model(budget=ModelBudget(price=Price.of(5.0, 20.0)))
    world.run([priced], provider, duration_s=6 * HOUR_S, daily_cost=0.08)
    assert 90 <= len(provider.sent) <= 100, "80 tokens at 5 and 20 at 20 per million are 0.0008 a request"
    assert world.of(DailyBudgetSpent)[0].limit == "daily_cost"


def test_the_first_burst_of_a_model_nothing_is_known_of_keeps_within_the_budget(world: BudgetWorld) -> None:
    provider = Metered()
    eager = limited(tokens=2_000, max_parallel=20, options=(("max_tokens", 300),))
    world.run([eager], provider, duration_s=HOUR_S, tasks=MatrixTaskProvider(["test:one"], 200))
    assert len(provider.sent) <= 20
    assert world.of(TaskDeferred), "what did not fit was put off"
    assert {s.error_kind for s in world.store.samples} == {None}


def test_a_request_that_no_day_allows_is_recorded_without_a_score_and_stops_nothing(world: BudgetWorld) -> None:
    provider = Metered()
    huge = limited(tokens=200, options=(("max_tokens", 1_000),))
    world.run([huge], provider, duration_s=HOUR_S)
    assert provider.sent == []
    assert {(s.score, s.error_kind) for s in world.store.samples} == {(None, "daily_budget")}
    assert "more than daily_tokens=200 allows in any 24 h" in (world.store.samples[0].error or "")


def test_an_endpoint_that_counts_nothing_is_counted_by_the_estimate_and_told_once(world: BudgetWorld) -> None:
    provider = Metered(reports_usage=False)
    world.run([limited(tokens=2_000)], provider, duration_s=6 * HOUR_S)
    assert [event.model for event in world.of(UsageMissing)] == ["alpha@main"]
    per_request = world.of(UsageMissing)[0].estimated_tokens
    assert 0 < len(provider.sent) <= 2_000 // per_request
