"""Error pauses of models, and backpressure of the queue."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headgate.core import ErrorKind, Model
from headgate.core.events import (
    ModelGivenUp,
    ModelPaused,
    ModelResumed,
    ModelUnscored,
    QueuePaused,
    QueueResumed,
    QueueWarned,
)
from headgate.run import Run
from headgate.run.matrix import MatrixTaskProvider
from headgate.simulation import LoopClock, ServiceTime
from headgate.storage import Opening
from tests.run.run_world import World, models

RATES = {"affine:sat": 8_640.0}
STEADY = {"low_sample_threshold": 0}


def failing(model_name: str, kind: ErrorKind, until_s: float):
    def script(model: Model, at: float) -> ErrorKind | None:
        return kind if model.name == model_name and at < until_s else None

    return script


@pytest.mark.parametrize("kind", [ErrorKind.AUTH, ErrorKind.PROVIDER_FAILURE, ErrorKind.CONNECTION])
def test_three_service_errors_pause_a_model_for_fifteen_minutes(world: World, kind: ErrorKind) -> None:
    world.run(models(2), RATES, duration_s=1_200, script=failing("m000", kind, 100), settings=STEADY)
    pause = world.of(ModelPaused)[0]
    assert (pause.model, pause.pause_s, pause.consecutive_errors) == ("m000@main", 900, 3)
    assert [e.model for e in world.of(ModelResumed)] == ["m000@main"]
    paused_at = max(s.finished_at for s in world.samples_of("m000@main") if s.error_kind)
    quiet = [s for s in world.samples_of("m000@main") if paused_at + 10 < s.started_at < paused_at + 899]
    assert quiet == []
    assert any(s.score is not None for s in world.samples_of("m000@main")), "it is sampled again afterwards"
    healthy = world.samples_of("m001@main")
    assert len(healthy) >= 118, "nobody else suffers"


def test_errors_that_pause_no_model_are_told_once_until_a_sample_is_scored(world: World) -> None:
    def script(model: Model, at: float) -> ErrorKind | None:
        return ErrorKind.BAD_REQUEST if model.name == "m000" and not 300 < at < 400 else None

    world.run(models(2), RATES, duration_s=700, script=script, settings=STEADY)
    told = world.of(ModelUnscored)
    assert [(e.model, e.samples, e.last_error) for e in told] == [("m000@main", 10, "scripted bad_request")] * 2
    assert world.of(ModelPaused) == []


def test_windows_of_a_few_samples_count_on_from_those_before_them(world: World) -> None:
    since: list[float | None] = []

    async def ask(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(39.0)
        since.append(campaign.status().models[0].unscored_since)

    def window(number: int, kind: ErrorKind | None) -> list[int]:
        world.run(
            models(1), RATES, start_s=40.0 * number, duration_s=40, script=lambda *_: kind, settings=STEADY, during=ask
        )
        return [event.samples for event in world.of(ModelUnscored)]

    assert [window(number, ErrorKind.BAD_REQUEST) for number in range(3)] == [[], [], [10]], "four samples each"
    assert window(3, ErrorKind.BAD_REQUEST) == [10, 13], "each run tells of it once"
    began = min(sample.finished_at for sample in world.samples_of("m000@main"))
    assert since == [began] * 4, "it began in the first of them"
    assert window(4, None) == window(5, ErrorKind.BAD_REQUEST) == [10, 13]
    assert since[4:] == [None, min(sample.finished_at for sample in world.samples_of("m000@main")[-4:])]


def test_no_request_is_sent_once_the_errors_suffice_for_a_pause(world: World) -> None:
    world.run(
        models(1, max_parallel=1),
        {"affine:sat": 86_400.0},
        duration_s=600,
        service=ServiceTime(2.0),
        script=failing("m000", ErrorKind.AUTH, 1e9),
        settings=STEADY,
    )
    assert len(world.of(ModelPaused)) == 1
    assert len(world.store.samples) == 3


def test_pauses_double_while_the_service_stays_down_and_reset_with_an_answer(world: World) -> None:
    world.run(models(1), RATES, duration_s=8_000, script=failing("m000", ErrorKind.AUTH, 3_500), settings=STEADY)
    assert [p.pause_s for p in world.of(ModelPaused)] == [900, 1_800, 3_600]
    assert world.campaign is not None
    assert world.campaign.samplers["m000@main"].pause.level == 0


@pytest.mark.parametrize("kind", [ErrorKind.RATE_LIMITED, ErrorKind.BAD_REQUEST, ErrorKind.BAD_ANSWER])
def test_what_is_no_service_error_pauses_nobody(world: World, kind: ErrorKind) -> None:
    settings = STEADY | {"early_stop": False}
    world.run(models(1), RATES, duration_s=600, script=failing("m000", kind, 1e9), settings=settings)
    assert world.of(ModelPaused) == []
    assert len(world.store.samples) >= 59


def test_a_failed_request_is_recorded_without_a_score_and_a_bad_answer_with_zero(world: World) -> None:
    world.run(models(1), RATES, duration_s=25, script=failing("m000", ErrorKind.RATE_LIMITED, 1e9))
    assert {s.score for s in world.store.samples} == {None}
    assert {s.error_kind for s in world.store.samples} == {"rate_limited"}


def test_a_pause_holds_what_is_queued_and_loses_none_of_it(world: World) -> None:
    world.run(
        models(1, max_parallel=1),
        RATES,
        duration_s=1_500,
        service=ServiceTime(12.0),
        script=failing("m000", ErrorKind.AUTH, 40),
        settings=STEADY,
    )
    (numbers,) = world.sequences().values()
    assert numbers == list(range(len(numbers)))


def test_a_pause_survives_a_restart(world: World) -> None:
    script = failing("m000", ErrorKind.AUTH, 1e9)
    world.run(models(1), RATES, duration_s=100, script=script, settings=STEADY)
    assert len(world.of(ModelPaused)) == 1
    before = len(world.store.samples)
    world.run(models(1), RATES, start_s=200, duration_s=500, script=script, settings=STEADY)
    assert len(world.store.samples) == before
    world.run(models(1), RATES, start_s=1_000, duration_s=200, settings=STEADY)
    assert len(world.store.samples) > before


# Runs that end by themselves.


def matrix(instances: int, *environments: str) -> dict[str, Any]:
    return {"provider": MatrixTaskProvider(environments or ("affine:sat",), instances), "stop_when_idle": True}


def test_a_run_of_fixed_tasks_pauses_for_seconds_and_ends_when_its_service_is_back(world: World) -> None:
    script = failing("m000", ErrorKind.CONNECTION, 20)
    one_by_one = models(2, max_parallel=1)
    result = world.run(one_by_one, RATES, duration_s=None, script=script, plan=matrix(40))
    assert [p.pause_s for p in world.of(ModelPaused)] == [2, 4, 8]
    assert world.of(ModelGivenUp) == []
    assert result.status.captured_at - result.status.started_at < 300
    assert result.stopped_by == "everything is done"
    assert {e: len(n) for e, n in world.sequences().items()} == {(f"m00{n}@main", "affine:sat"): 40 for n in range(2)}


def test_a_model_that_stays_down_is_given_up_and_the_others_are_completed(world: World) -> None:
    script = failing("m000", ErrorKind.AUTH, 1e9)
    rates = {"affine:sat": 100.0, "affine:abd": 100.0}
    result = world.run(models(3, max_parallel=1), rates, duration_s=None, script=script, plan=matrix(40, *rates))
    (given_up,) = world.of(ModelGivenUp)
    assert (given_up.model, given_up.pauses) == ("m000@main", 5)
    assert list(result.given_up) == ["m000@main"]
    assert len(world.samples_of("m000@main")) == 18, "three before each of five pauses, and three at last"
    assert [len(world.samples_of(f"m00{n}@main")) for n in (1, 2)] == [80, 80]
    assert (result.open_tasks, result.stopped_by) == (0, "everything is done")
    again = world.run(models(3, max_parallel=1), rates, start_s=900, duration_s=None, plan=matrix(40, *rates))
    assert again.given_up == {}, "a later run begins without its errors"
    scored = [s for s in world.samples_of("m000@main") if s.score is not None]
    assert len(scored) == 80 - 18, "what was withdrawn is taken; `failed` would have what failed taken again, too"


def test_what_a_dead_process_left_of_a_model_that_is_given_up_is_withdrawn(world: World) -> None:
    adopted = 0

    async def leave(campaign: Run, clock: LoopClock) -> None:
        nonlocal adopted
        while not world.of(ModelGivenUp):
            await clock.sleep(1)
        await clock.sleep(5)  # its own tasks are withdrawn
        left = Opening("m000@main", "affine:sat", campaign.now(), 0.0, 400, sequence=999, stage="sample.2")
        adopted = await campaign._demand.adopt([left])

    rates, script = {"affine:sat": 100.0}, failing("m000", ErrorKind.AUTH, 1e9)
    about = {"script": script, "during": leave, "plan": matrix(400, *rates), "duration_s": 50_000}
    result = world.run(models(2, max_parallel=1), rates, **about)
    assert (adopted, result.open_tasks, result.stopped_by) == (1, 0, "everything is done")
    assert {sample.stage for sample in world.samples_of("m000@main")} == {"sample"}


def test_a_used_up_quota_costs_a_sample_for_each_pause_until_its_model_is_given_up(world: World) -> None:
    script = failing("m000", ErrorKind.QUOTA, 1e9)
    result = world.run(models(2, max_parallel=1), RATES, duration_s=None, script=script, plan=matrix(40))
    assert [p.pause_s for p in world.of(ModelPaused)] == [2, 4, 8, 16, 32]
    assert list(result.given_up) == ["m000@main"]
    assert len(world.samples_of("m000@main")) == 6
    assert len(world.samples_of("m001@main")) == 40


def test_a_used_up_quota_rests_a_model_by_rates_for_longer_each_time(world: World) -> None:
    world.run(models(1), RATES, duration_s=8_000, script=failing("m000", ErrorKind.QUOTA, 3_500), settings=STEADY)
    assert [p.pause_s for p in world.of(ModelPaused)] == [900, 1_800, 3_600]
    assert len([s for s in world.store.samples if s.error_kind == "quota"]) == 3


@pytest.mark.long
def test_a_model_is_never_given_up_by_rates_or_without_early_stop(world: World) -> None:
    script = failing("m000", ErrorKind.AUTH, 1e9)
    world.run(models(2), RATES, duration_s=6_000, script=script, settings={**STEADY, "error_pause_s": 60})
    assert max(p.level for p in world.of(ModelPaused)) >= 6
    world.events.clear()
    settings = {"early_stop": False, "campaign": "fixed"}
    world.run(models(2, max_parallel=1), RATES, duration_s=3_600, script=script, settings=settings, plan=matrix(60))
    assert max(p.pause_s for p in world.of(ModelPaused)) == 60
    assert world.of(ModelGivenUp) == []


def test_a_run_of_fixed_tasks_does_not_sit_out_the_long_pause_of_another_one(world: World) -> None:
    world.run(models(1), RATES, duration_s=100, script=failing("m000", ErrorKind.AUTH, 1e9), settings=STEADY)
    (pause,) = world.of(ModelPaused)
    assert pause.pause_s == 900
    result = world.run(models(1), RATES, start_s=200, duration_s=None, plan=matrix(20))
    assert result.status.captured_at - result.status.started_at < 200


def test_a_long_pause_ends_without_a_burst(world: World) -> None:
    world.run(models(1), RATES, duration_s=3_000, script=failing("m000", ErrorKind.AUTH, 100), settings=STEADY)
    resumed = world.of(ModelResumed)[0].paused_for_s
    assert resumed >= 900
    after = sorted(s.started_at for s in world.store.samples if s.started_at > 1_767_225_600.0 + 1_000)
    gaps = [later - earlier for earlier, later in itertools.pairwise(after)]
    assert min(gaps) >= 3.9, "never more than twice the rate of one per 10 s"


def test_a_long_queue_warns_pauses_and_resumes_the_samplers(world: World) -> None:
    thresholds = {
        "queue_warning_threshold": 20,
        "queue_pause_threshold": 40,
        "queue_resume_threshold": 10,
        "queue_max_size": 45,
        "num_evaluation_workers": 1,
        "batch_size": 8,
        **STEADY,
    }

    def speed(_: Model, at: float) -> None:
        return None

    world.run(
        models(4),
        {"affine:sat": 86_400.0},
        duration_s=600,
        service=ServiceTime(0.4),
        script=speed,
        settings=thresholds,
    )
    assert world.of(QueueWarned)
    assert world.of(QueuePaused)[0].size >= 40
    assert max(e.size for e in world.of(QueuePaused)) <= 45
    assert world.of(QueueResumed)[0].size <= 10
    for numbers in world.sequences().values():
        assert numbers == list(range(len(numbers))), "a pause loses nothing and reorders nothing"
    in_order = [s.sequence for s in world.samples_of("m000@main")]
    assert in_order == sorted(in_order)


def test_more_demand_than_workers_piles_up_nowhere(world: World) -> None:
    backlogs: list[int] = []

    async def look(campaign: Run, clock: LoopClock) -> None:
        while True:
            await clock.sleep(1)
            queue = campaign.status().queue
            backlogs.append(queue.size + queue.buffered)

    world.run(
        models(8),
        {"affine:sat": 86_400.0},
        duration_s=900,
        service=ServiceTime(1.0),
        during=look,
        settings={
            "queue_warning_threshold": 20,
            "queue_pause_threshold": 40,
            "queue_resume_threshold": 10,
            "num_evaluation_workers": 1,
            **STEADY,
        },
    )
    assert max(backlogs) <= 40 + 8, "the threshold, and what fell due at once"


def test_a_queue_full_of_a_paused_models_tasks_empties_when_the_pause_ends(world: World) -> None:
    world.run(
        models(1, max_parallel=1),
        {"affine:sat": 86_400.0},
        duration_s=2_000,
        service=ServiceTime(2.0),
        script=failing("m000", ErrorKind.AUTH, 60),
        settings={"queue_warning_threshold": 5, "queue_pause_threshold": 8, "queue_resume_threshold": 3, **STEADY},
    )
    assert world.of(QueuePaused)
    assert world.of(ModelResumed)
    assert any(s.score is not None for s in world.store.samples)
