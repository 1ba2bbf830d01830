"""Where a task is, at every place on its way, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import ErrorKind, errors
from headgate.core.events import TaskOpened, TaskStarted
from headgate.core.status import RateStatus
from headgate.run import Run
from headgate.run.inquiry import capacity_plan, with_requests
from headgate.run.matrix import MatrixTaskProvider
from headgate.scheduling import Explanation
from headgate.simulation import LoopClock, ServiceTime
from tests.run.run_world import World, models
from tests.telemetry.factories import request_status

RATES = {"affine:sat": 86_400.0}


def asked(world: World, after_s: float, **options: Any) -> dict[str, Any]:
    """Run a campaign, ask it where each of its tasks is after so many seconds, and return the answers by state."""
    found: dict[str, Any] = {}

    async def ask(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(after_s)
        for task in world.of(TaskOpened):
            answer = await campaign.inquiry.explain(task.task_id)
            found.setdefault(answer.state, answer)
            found["about"] = await campaign.inquiry.about(task.task_id)
        found["tasks"] = campaign.inquiry.tasks(None, None, 1_000)
        found["health"] = campaign.inquiry.health()

    world.run(
        models(1, max_parallel=1), RATES, during=ask, duration_s=after_s + 50, plan={"is_traced": True}, **options
    )
    return found


def slow() -> ServiceTime:
    return ServiceTime(mean_s=30.0, cv=0.0)


def test_a_task_in_a_sampler_s_buffer_says_when_it_enters_the_queue(world: World) -> None:
    found = asked(world, 4.0, service=slow(), settings={"batch_flush_interval": 100.0, "num_evaluation_workers": 1})
    assert found["buffered"].gate == "batch"
    assert found["buffered"].until is not None
    assert {task["state"] for task in found["tasks"]} == {"running", "buffered"}


def test_an_answer_about_an_open_task_names_its_model_environment_and_number(world: World) -> None:
    found = asked(world, 4.0, service=slow())
    about, task = found["about"], next(one for one in found["tasks"] if one["task_id"] == found["about"]["task_id"])
    assert (about["state"], about["gate"]) != ("unknown", "none")
    assert {name: about[name] for name in ("model", "environment", "sequence")} == {
        name: task[name] for name in ("model", "environment", "sequence")
    }


def test_no_task_is_kept_in_a_buffer_while_a_worker_is_free(world: World) -> None:
    started = []

    async def ask(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(4.0)
        started.extend(world.of(TaskStarted))

    options: Any = {"duration_s": 5, "settings": {"batch_flush_interval": 100.0}, "plan": {"is_traced": True}}
    world.run(models(1), RATES, during=ask, **options)
    assert len(started) >= 3
    assert all(event.queue_wait_s < 0.1 for event in started)


def test_a_queued_task_names_the_gate_that_holds_it_and_a_running_one_none(world: World) -> None:
    found = asked(world, 20.0, service=slow(), settings={"batch_flush_interval": 0.0})
    assert found["running"].gate == "none"
    assert found["queued"].gate == "model_parallel"
    assert found["health"].queued >= 2


def test_a_running_task_stands_first_and_the_others_by_due_time(world: World) -> None:
    tasks = asked(world, 20.0, service=slow(), settings={"batch_flush_interval": 1.0})["tasks"]
    assert tasks[0]["state"] == "running"
    rest = [task["due_at"] for task in tasks[1:]]
    assert rest == sorted(rest)


def test_a_sample_that_waits_for_its_batch_is_spooled(world: World) -> None:
    found = asked(world, 20.0, settings={"sink_batch_size": 10_000, "sink_max_wait": 1_000.0})
    assert found["spooled"].gate == "batch"
    assert "1000 s after the oldest" in found["spooled"].reason


def test_a_task_that_never_was_is_not_found(world: World) -> None:
    async def ask(campaign: Run, clock: LoopClock) -> None:
        await asyncio.sleep(1)
        with pytest.raises(errors.NotFoundError, match="is not open in campaign main"):
            await campaign.inquiry.explain("t-" + "0" * 24)

    world.run(models(1), RATES, during=ask, duration_s=5)


def test_health_names_the_largest_groups_and_counts_the_others(world: World) -> None:
    async def ask(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(59.0)
        health = campaign.inquiry.health()
        assert len(health.queued_by_group) == 20
        assert health.groups_left_out > 0
        assert health.queued == len(list(campaign._parts.dispatcher.queue.items()))
        assert health.resources == {"workers": (2, 2)}
        assert health.leases == health.active == 2

    settings = {"num_evaluation_workers": 2, "batch_flush_interval": 0.0}
    world.run(models(40), RATES, during=ask, duration_s=70, service=slow(), settings=settings)


def test_the_worker_of_a_parked_episode_is_not_busy_with_it(world: World) -> None:
    async def ask(campaign: Run, clock: LoopClock) -> None:
        def busy() -> object:
            return campaign.inquiry.capacity().runtime["workers_busy"].value

        await clock.sleep(29.0)
        dispatcher = campaign._parts.dispatcher
        lease = dispatcher.lease_of(next(iter(campaign._stages.tasks)).task_id)
        assert lease is not None
        assert busy() == 2
        assert dispatcher.park(lease, 0.0)
        assert busy() == 1
        dispatcher.unpark(lease, 0.0)

    settings = {"num_evaluation_workers": 2, "batch_flush_interval": 0.0}
    world.run(models(4), RATES, during=ask, duration_s=40, service=slow(), settings=settings)


def test_a_pair_without_an_open_task_says_when_its_next_sample_falls_due_or_why_none_does(world: World) -> None:
    model, environment = "m000@main", "affine:sat"

    async def ask(campaign: Run, clock: LoopClock) -> None:
        def said() -> Explanation:
            found = campaign.inquiry.next_due(model, environment)
            assert found is not None
            assert (found.task_id, found.state) == (f"the next task of {model} in {environment}", "not due")
            return found

        await clock.sleep(30.0)
        assert campaign.inquiry.tasks(model, environment, 1) == []
        due = said()
        assert (due.gate, due.reason) == ("rate", "all its due samples are done; it is sampled 86.4 times a day")
        assert due.until is not None
        assert due.until > campaign.now()
        assert campaign.inquiry.next_due(model, "test:other") is campaign.inquiry.next_due("other", environment) is None

        await campaign.steering.steer({"verb": "pause", "environment": environment, "reason": "new disks"}, "ops")
        assert (said().gate, said().until) == ("paused", None)
        assert said().reason.endswith(": new disks")
        await campaign.steering.steer({"verb": "resume", "environment": environment}, "ops")
        assert said() == due

        campaign._settling.give_up(model, "its engine does not start")
        assert (said().gate, said().reason) == (
            "settled",
            "it gets no further sample: its engine does not start",
        )

        await campaign.steering.steer({"verb": "drain"}, "ops")
        assert said().gate == "draining"

    world.run(models(1), {environment: 86.4}, during=ask, duration_s=900, settings={"low_sample_threshold": 0})
    assert world.samples_of(model), "it was sampled before"


def test_a_pair_of_which_no_sample_is_scored_says_so_with_the_last_error(world: World) -> None:
    found: dict[str, Any] = {}

    async def ask(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(30.0)
        found["due"] = campaign.inquiry.next_due("m000@main", "affine:sat")
        (found["status"],) = campaign.status().models
        task = next(iter(campaign._stages.tasks), None) or world.of(TaskOpened)[-1]
        found["task"] = await campaign.inquiry.explain(task.task_id)

    world.run(
        models(1),
        RATES,
        during=ask,
        duration_s=40,
        service=ServiceTime(3.0, cv=0.0),
        script=lambda *_: ErrorKind.BAD_REQUEST,
        settings={"early_stop": False},
        plan={"is_traced": True},
    )
    status = found["status"]
    assert (status.is_paused, status.unscored >= 10) == (False, True)
    words = f"; none of its model's last {status.unscored} samples has a score, the last error: scripted bad_request"
    assert found["due"].reason.endswith(words)
    assert found["task"].state == "running"
    assert found["task"].reason.endswith(words)


def test_a_pair_whose_model_is_paused_for_errors_or_whose_mean_is_known_says_so(world: World) -> None:
    found: dict[str, Explanation | None] = {}

    async def ask(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(800.0)
        found.update({key: campaign.inquiry.next_due(key, "test:one") for key in campaign.samplers})

    settings = {"target_half_width": 0.2, "target_min_tasks": 20, "low_sample_threshold": 0}
    world.run(
        models(2),
        {"test:one": 86_400.0},
        during=ask,
        duration_s=900,
        settings=settings,
        script=lambda model, _: ErrorKind.AUTH if model.name == "m001" else None,
    )
    known, failing = found["m000@main"], found["m001@main"]
    assert known is not None
    assert (known.gate, known.reason) == ("settled", "it gets no further sample: its mean is known well enough")
    assert failing is not None
    assert (failing.gate, failing.reason) == (
        "model_pause",
        "model m001@main is paused for errors (pause 1); the last error: scripted auth",
    )
    assert failing.until is not None


def test_a_pair_of_a_fixed_matrix_that_is_done_has_no_further_task(world: World) -> None:
    async def ask(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(100.0)
        found = campaign.inquiry.next_due("m000@main", "test:one")
        assert found is not None
        assert (found.gate, found.until) == ("source", None)
        assert found.reason == "all its due samples are done, and the run's source has no further task for it"

    provider = MatrixTaskProvider(["test:one"], 3)
    world.run(models(1), {"test:one": 100.0}, during=ask, duration_s=200, plan={"provider": provider})
    assert len(world.samples_of("m000@main")) == 3


def test_a_sample_that_waits_for_a_limit_per_minute_hears_which_one_binds() -> None:
    free, scarce = (
        RateStatus(scope, "output_tokens_per_minute", 8_000.0, 1.0, left, 0.0, is_told=False)
        for scope, left in (("model large at a", 900.0), ("organisation acme", 0.0))
    )
    asked = request_status(
        1, models=("large@main",), pressure="output_tokens_per_minute", cooldown_s=4.0, rates=(free, scarce)
    )
    found = with_requests(Explanation("t-1", "running", "none", "it runs"), "large@main", [asked], now=10.0)
    assert (found.gate, found.until) == ("request_admission", 14.0)
    assert found.reason.endswith("wait (output_tokens_per_minute of its organisation acme)")


@pytest.mark.parametrize(
    ("is_heard", "source"), [(False, "learnt from refusals"), (True, "learnt from refusals of other processes")]
)
def test_a_limit_per_minute_that_nobody_states_says_whose_refusals_show_it(*, is_heard: bool, source: str) -> None:
    rate = RateStatus(
        "model large at a", "tokens_per_minute", 8e3, 0.5, 0.0, 0.0, is_told=False, is_learnt=True, is_heard=is_heard
    )
    asked = request_status(1, models=("large@main",), pressure=rate.unit, cooldown_s=4.0, rates=(rate,))
    found = with_requests(Explanation("t-1", "running", "none", "it runs"), "large@main", [asked], now=10.0)
    assert found.reason.endswith(f"wait (tokens_per_minute of its model large at a, {source})")
    runtime = capacity_plan(Settings(), [], [asked]).runtime["tokens_per_minute model large at a"]
    assert (runtime.value, runtime.detail) == (8e3, source)
