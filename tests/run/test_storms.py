"""A provider in a storm of 429s: nothing of its own is lost, and nobody else waits for it. In virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import ChatError, ChatReply, ErrorKind, Model, Sample
from headgate.core.errors import HostLostError
from headgate.core.events import Event, TaskDeferred, TaskStarted
from headgate.environments import EpisodeResult, episode
from headgate.run import EndpointChats, RequestSide, Run, RunPlan, RunResult
from headgate.run.stages import MAX_DEFERRALS
from headgate.sampling import Roster, RosterSource, StaticRoster
from headgate.simulation import LoopClock, MemoryStore, free_environments, run_virtual
from headgate.storage import TaskState
from tests.run.providers import Providers, StormyProvider

WORKERS = 8
STORM = (120.0, 420.0)
"""Five minutes."""


class StormWorld:
    """One campaign against providers, and everything that it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.events: list[Event] = []
        self.result: RunResult | None = None
        self.statuses: list[Any] = []

    def run(
        self,
        roster: Sequence[Model] | RosterSource,
        providers: Providers,
        *,
        watch: Callable[[Run], None] = lambda _: None,
        rate_per_s: float = 4.0,
        duration_s: float = 900.0,
        **settings: Any,
    ) -> None:
        async def main() -> RunResult:
            clock = LoopClock()
            chosen = Settings(
                journal=self.folder,
                batch_flush_interval=1,
                num_evaluation_workers=settings.pop("num_evaluation_workers", WORKERS),
                low_sample_threshold=0,
                drain_timeout_s=settings.pop("drain_timeout_s", 120),
                queue_warning_threshold=50_000,
                queue_pause_threshold=60_000,
                **settings,
            )
            requests = RequestSide(chosen, clock=clock, emit=self.events.append)
            plan = RunPlan(
                chosen,
                StaticRoster(roster) if isinstance(roster, Sequence) else roster,
                free_environments({"test:free": rate_per_s * 86_400}, data_length=100_000),
                self.store,
                EndpointChats(providers, requests, clock=clock),
                requests=requests,
                duration_s=duration_s,
            )
            campaign = Run(plan, clock=clock, emit=self.events.append, inline=True)

            async def look() -> None:
                while True:
                    await clock.sleep(10)
                    self.statuses.append((clock.monotonic(), campaign.status()))
                    watch(campaign)

            async with asyncio.TaskGroup() as group:
                looking = group.create_task(look())
                result = await campaign.run()
                looking.cancel()
            requests.admission.validate()
            assert all(key.in_flight == 0 for key in requests.admission.statuses()), "no lease is left"
            assert requests.admission.waiting() == 0
            return result

        self.result = run_virtual(main())

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    def samples_of(self, name: str) -> list[Sample]:
        return [s for s in self.store.samples if s.model.startswith(f"{name}@")]


@pytest.fixture
def world(tmp_path: Path) -> StormWorld:
    return StormWorld(tmp_path / "journal")


def model(host: str, **fields: Any) -> Model:
    return Model(host, uid=sum(map(ord, host)), base_url=f"http://{host}/v1", max_parallel=WORKERS, **fields)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Answers per second of the calm provider with all workers to itself."""
    calm = StormyProvider()
    world = StormWorld(tmp_path_factory.mktemp("alone") / "journal")
    world.run([model("calm")], Providers(calm=calm), duration_s=STORM[1])
    return calm.throughput(*STORM)


@pytest.mark.parametrize(
    ("law", "retry_after_s"),
    [
        ("adaptive", 30.0),
        pytest.param("adaptive", None, marks=pytest.mark.long),
        pytest.param("aimd", 30.0, marks=pytest.mark.long),
    ],
)
def test_a_storm_at_one_provider_costs_the_other_nothing_and_loses_no_sample(
    world: StormWorld, alone: float, law: str, retry_after_s: float | None
) -> None:
    calm, stormy = StormyProvider(), StormyProvider(storms=[STORM], retry_after_s=retry_after_s)
    world.run([model("calm"), model("stormy")], Providers(calm=calm, stormy=stormy), duration_s=600.0, limit_law=law)
    share = calm.throughput(*STORM) / alone
    assert share >= 0.95, f"the calm provider kept {share:.1%} of its throughput"
    assert {s.error_kind for s in world.store.samples} == {None}
    numbers = sorted(s.sequence for s in world.samples_of("stormy"))
    assert numbers == list(range(len(numbers))), "nothing that fell due before, in or after the storm is left out"
    assert len(stormy.refused) < 300, "a provider that refuses is not hammered"
    if law == "aimd":
        return  # it grows by one for 25 successes: 25 rounds of 2 s for the first step alone
    before = stormy.throughput(60, 120)
    recovered = next(at for at in range(420, 580) if stormy.throughput(at, at + 20) >= 0.9 * before) - STORM[1]
    assert recovered <= 60, f"{recovered} s until 90 % of {before:.2f} per s"


@pytest.mark.long
def test_the_status_says_what_a_storm_does(world: StormWorld) -> None:
    world.run(
        [model("calm"), model("stormy")],
        Providers(calm=StormyProvider(), stormy=StormyProvider(storms=[STORM])),
        duration_s=300.0,
    )
    status = next(s for at, s in world.statuses if at >= 200)
    requests = {r.provider: r for r in status.requests}
    assert requests["http://stormy/v1"].models == ("stormy@main",)
    assert requests["http://stormy/v1"].limit == 1
    assert requests["http://stormy/v1"].consecutive_rate_limits > 5
    assert requests["http://stormy/v1"].breaker in {"open", "half_open"}
    assert requests["http://calm/v1"].in_flight >= WORKERS - 1
    assert requests["http://calm/v1"].consecutive_rate_limits == 0
    parked = [s.workers.parked for _, s in world.statuses]
    assert 0 < max(parked) <= WORKERS
    assert max(s.workers.utilization_last_minute for _, s in world.statuses) <= 1.0


def test_an_episode_whose_time_ends_while_it_waits_runs_again_until_it_is_scored(world: StormWorld) -> None:
    storm = (60.0, 1_500.0)
    stormy = StormyProvider(storms=[storm])
    world.run([model("stormy")], Providers(stormy=stormy), rate_per_s=0.05, duration_s=1_800.0)
    deferred = world.of(TaskDeferred)
    assert deferred, "the storm outlasts the 600 s of an episode"
    assert {s.error_kind for s in world.store.samples} == {None}
    numbers = sorted(s.sequence for s in world.samples_of("stormy"))
    assert numbers == list(range(len(numbers)))
    assert set(numbers) >= {int(i) for i in range(70)}


@pytest.mark.long
def test_a_provider_that_asks_for_an_hour_gets_its_rest_and_its_samples_wait(world: StormWorld) -> None:
    stormy = StormyProvider(storms=[(60.0, 120.0)], retry_after_s=3_600.0)
    world.run([model("calm"), model("stormy")], Providers(calm=StormyProvider(), stormy=stormy), duration_s=600.0)
    assert {s.error_kind for s in world.store.samples} == {None}
    assert any(at > 120 for at in stormy.answered), "a Retry-After never ends a model for good"
    assert len(stormy.refused) <= 2 * WORKERS


def test_a_task_that_is_never_admitted_is_recorded_as_rate_limited_in_the_end(world: StormWorld) -> None:
    stormy = StormyProvider(storms=[(0.0, 1e9)], retry_after_s=200.0)
    world.run([model("stormy")], Providers(stormy=stormy), rate_per_s=0.001, duration_s=20_000.0, early_stop=False)
    recorded = world.samples_of("stormy")
    assert recorded
    assert {s.error_kind for s in recorded} == {"rate_limited"}
    assert max(e.deferrals for e in world.of(TaskDeferred)) == MAX_DEFERRALS


def test_lost_hosts_and_refusals_of_a_task_are_counted_apart(
    world: StormWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: Counter[int] = Counter()

    async def converse(environment: Any, index: int, *args: Any, **more: Any) -> EpisodeResult:
        turns[index] += 1
        if turns[index] in {6, 7}:
            raise HostLostError("its node is gone")
        return await episode.converse(environment, index, *args, **more)

    monkeypatch.setattr("headgate.run.stages.converse", converse)
    stormy = StormyProvider(storms=[(0.0, 1e9)], retry_after_s=200.0)
    world.run([model("stormy")], Providers(stormy=stormy), rate_per_s=0.001, duration_s=20_000.0, early_stop=False)
    recorded = world.samples_of("stormy")
    assert {s.error_kind for s in recorded} == {"rate_limited"}
    assert {turns[s.index] for s in recorded} == {MAX_DEFERRALS + 2 + 1}
    told = Counter(e.task_id for e in world.of(TaskDeferred) if e.reason == "its node is gone")
    assert {told[s.task_id] for s in recorded} == {2}


def test_a_task_that_waits_to_run_again_is_not_one_that_a_death_of_the_process_counts_against(
    world: StormWorld,
) -> None:
    states: list[TaskState] = []

    def look(campaign: Run) -> None:
        last = {e.task_id: e for e in world.events if isinstance(e, TaskStarted | TaskDeferred)}
        waiting = [task_id for task_id, e in last.items() if isinstance(e, TaskDeferred)]
        states.extend(campaign.journal.journal.state_of(task_id) for task_id in waiting)

    stormy = StormyProvider(storms=[(0.0, 1e9)], retry_after_s=200.0)
    world.run([model("stormy")], Providers(stormy=stormy), watch=look, rate_per_s=0.01, duration_s=2_000.0)
    assert set(states) == {TaskState.OPEN}


def test_a_campaign_that_is_stopped_in_a_storm_keeps_its_tasks_open(world: StormWorld) -> None:
    stormy = StormyProvider(storms=[(60.0, 1e9)])
    world.run([model("stormy")], Providers(stormy=stormy), duration_s=200.0, drain_timeout_s=5)
    assert world.result is not None
    assert world.result.open_tasks > 0
    assert {s.error_kind for s in world.store.samples} == {None}


@pytest.mark.long
def test_a_model_that_leaves_in_a_storm_is_asked_no_more(world: StormWorld) -> None:
    class Shrinking:
        async def load(self) -> Roster:
            both = asyncio.get_running_loop().time() < 100
            return Roster(tuple([model("calm"), model("stormy")] if both else [model("calm")]))

    stormy = StormyProvider(storms=[(60.0, 250.0)])
    world.run(Shrinking(), Providers(calm=StormyProvider(), stormy=stormy), duration_s=400.0, roster_refresh_s=120)
    assert stormy.answered[-1] > 250, "what was in flight ran on to its end"
    assert stormy.answered[-1] < 330
    assert [r.provider for r in world.statuses[-1][1].requests] == ["http://calm/v1"]


@pytest.mark.parametrize(("law", "least"), [("adaptive", 0.95), pytest.param("aimd", 0.8, marks=pytest.mark.long)])
def test_a_provider_with_a_third_of_the_slots_is_kept_busy_and_loses_no_sample(
    world: StormWorld, law: str, least: float
) -> None:
    provider = StormyProvider(slots=20)
    one = Model("one", base_url="http://one/v1", max_parallel=64)
    world.run([one], Providers(one=provider), rate_per_s=30, duration_s=200.0, limit_law=law, num_evaluation_workers=64)
    assert provider.throughput(100, 200) >= least * 20 / 2.0
    assert {s.error_kind for s in world.store.samples} == {None}
    assert len(provider.refused) <= 0.04 * len(provider.answered)


def test_aliases_of_one_model_share_its_limit(world: StormWorld) -> None:
    shared = StormyProvider(service_s=1.0)
    roster = [
        Model(name, uid=uid, base_url="http://shared/v1", served_name="one", max_parallel=3)
        for uid, name in enumerate(("first", "second"))
    ]
    world.run(roster, Providers(shared=shared), duration_s=120.0)
    assert shared.peak == 3
    counts = [len(world.samples_of(name)) for name in ("first", "second")]
    assert abs(counts[0] - counts[1]) <= 6, "and share it fairly"


@pytest.mark.long
@pytest.mark.parametrize("dead", [3, 4])
def test_dead_models_stop_nobody_who_works_but_all_of_them_stop_the_run(world: StormWorld, dead: int) -> None:
    hosts = ["a", "b", "c", "d"]
    world.run(
        [model(host) for host in hosts],
        Providers(**{host: Broken() if i < dead else StormyProvider() for i, host in enumerate(hosts)}),
        duration_s=300.0,
    )
    assert world.result is not None
    assert world.result.stopped_early is (dead == 4)
    assert ("keep failing" in world.result.stopped_by) is (dead == 4)


def test_a_defect_in_what_sends_requests_stops_the_run_and_is_booked_on_nobody(world: StormWorld) -> None:
    class Defective(StormyProvider):
        async def answer(self) -> ChatReply:
            raise TypeError("a defect of ours")

    with pytest.raises(ExceptionGroup) as caught:
        world.run([model("calm")], Providers(calm=Defective()))
    found: BaseException = caught.value
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, TypeError)
    assert world.store.samples == []


class Broken(StormyProvider):
    """Refuses every request as malformed, at once."""

    async def answer(self) -> ChatReply:
        await asyncio.sleep(0.01)
        raise ChatError(ErrorKind.BAD_REQUEST, "HTTP 400", status=400)
