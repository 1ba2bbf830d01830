"""Steering a run: what is paused rests and loses nothing, and what is set holds at once and after a restart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.core import ErrorKind, Model
from headgate.core.audit import audit_entries
from headgate.core.errors import ControlChangedError, HeadgateError, InvalidInputError, NotFoundError
from headgate.core.events import ControlChanged, DuesForgiven, ModelPaused, ModelResumed, TaskReturned
from headgate.run import Run
from headgate.run.matrix import MatrixTaskProvider
from headgate.simulation import LoopClock, ServiceTime
from headgate.storage import ControlOrder, Journal
from tests.run.run_world import World, models
from tests.run.test_pauses import failing, matrix

RATES = {"affine:sat": 8_640.0, "affine:abd": 8_640.0}
STEADY = {"low_sample_threshold": 0}
EPOCH = 1_767_225_600.0
During = Callable[[Run, LoopClock], Awaitable[None]]


async def steer(run: Run, verb: str, *, dry_run: bool = False, by: str = "ops", **fields: Any) -> dict[str, Any]:
    return await run.steering.steer({"verb": verb, **fields}, by, dry_run=dry_run)


def at(*orders: tuple[float, str, dict[str, Any]]) -> During:
    """Give orders at these seconds of the run."""

    async def during(run: Run, clock: LoopClock) -> None:
        for seconds, verb, fields in orders:
            await clock.sleep(EPOCH + seconds - run.now())
            await steer(run, verb, **fields)

    return during


def started_between(world: World, first: float, last: float, **of: str) -> int:
    return sum(
        EPOCH + first < sample.started_at < EPOCH + last and all(getattr(sample, name) == v for name, v in of.items())
        for sample in world.store.samples
    )


SUBJECTS: list[dict[str, str]] = [
    {},
    {"model": "m000@main"},
    {"environment": "affine:sat"},
    {"model": "m000@main", "environment": "affine:sat"},
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_what_is_paused_starts_nothing_loses_nothing_and_goes_on(world: World, subject: dict[str, str]) -> None:
    during = at((200, "pause", subject), (800, "resume", subject))
    world.run(models(2), RATES, duration_s=1_200, service=ServiceTime(12.0), during=during, settings=STEADY)
    assert started_between(world, 201, 800, **subject) == 0
    assert started_between(world, 801, 860, **subject) > 0
    others = [s for s in world.store.samples if any(getattr(s, name) != value for name, value in subject.items())]
    assert sum(EPOCH + 200 < s.started_at < EPOCH + 800 for s in others) == pytest.approx(
        {"": 0, "model": 120, "environment": 120, "model environment": 180}[" ".join(subject)], abs=6
    )
    assert all(numbers == list(range(len(numbers))) for numbers in world.sequences().values())
    assert len({s.task_id for s in world.store.samples}) == len(world.store.samples)
    assert world.campaign is not None
    assert world.campaign._parts.dispatcher.aside == {}
    world.campaign._parts.dispatcher.validate()


def test_dues_of_a_long_pause_are_forgiven_as_after_a_pause_for_errors(world: World) -> None:
    during = at((100, "pause", {}), (2_100, "resume", {}))
    settings = STEADY | {"catch_up_horizon_s": 300}
    world.run(models(1), RATES, duration_s=2_800, during=during, settings=settings)
    assert sum(event.dues for event in world.of(DuesForgiven)) == pytest.approx(2 * (2_000 - 300) / 10, abs=4)
    assert started_between(world, 2_100, 2_130) <= 16, "it catches up at twice the rate, without a burst"


def test_queued_samples_of_a_pair_stand_aside_and_let_others_pass(world: World) -> None:
    seen: list[Any] = []

    async def during(run: Run, clock: LoopClock) -> None:
        await clock.sleep(300)
        said = await steer(run, "pause", environment="affine:sat", reason="a bad scorer")
        expected = r"paused environment affine:sat: samples in progress \([01]\) end, queued ones \(\d+\) wait"
        assert re.fullmatch(expected, said["did"])
        await clock.sleep(30)
        aside = [task for state, task in run.inquiry.open_tasks() if state == "paused"]
        assert aside
        seen.append(await run.inquiry.explain(aside[0].task_id))
        seen.append(len(run._parts.dispatcher.aside))
        await clock.sleep(600)
        seen.append(len(run._parts.dispatcher.aside))
        await steer(run, "resume", environment="affine:sat")

    one = models(1, max_parallel=1)
    world.run(one, RATES, duration_s=1_200, service=ServiceTime(8.0), during=during, settings=STEADY)
    why, before, later = seen
    assert (why.state, why.gate) == ("queued", "paused")
    assert why.reason == ("environment affine:sat is paused by ops since 2026-01-01 00:05:00 UTC: a bad scorer")
    assert before == later, "nothing piles up"
    assert started_between(world, 320, 920, environment="affine:abd") >= 65


def test_a_pause_survives_a_restart_and_a_new_model_in_it_rests_too(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    during = at((100, "pause", {"environment": "affine:sat"}))
    world.run(models(1), RATES, duration_s=200, during=during, settings=STEADY)
    before = world.counts()["affine:sat"].total()
    assert caplog.messages == []
    world.run(models(2), RATES, start_s=300, duration_s=600, settings=STEADY)
    (said,) = caplog.messages
    assert said.startswith("environment affine:sat is paused by "), "who waits for the run is told why at its start"
    assert world.counts()["affine:sat"].total() == before
    assert world.counts()["affine:abd"]["m001@main"] > 50
    world.run(
        models(2),
        RATES,
        start_s=1_000,
        duration_s=600,
        settings=STEADY,
        during=at((1_001, "resume", {"environment": "affine:sat"})),
    )
    assert world.counts()["affine:sat"]["m001@main"] > 50


def test_what_is_written_to_the_journal_by_others_acts_and_acts_once(world: World) -> None:
    async def during(run: Run, clock: LoopClock) -> None:
        await clock.sleep(100)
        other = Journal(world.folder, "main", fsync=False)
        other.steer(ControlOrder("pause", what="paused", value=True, reason="by hand"), "a command", run.now())
        other.close()
        await clock.sleep(10.0)
        assert run.steering.document()["controls"][0]["by"] == "a command"
        await clock.sleep(300)

    world.run(models(1), RATES, duration_s=400, during=during, settings=STEADY)
    assert started_between(world, 111, 400) == 0
    (told,) = world.of(ControlChanged)
    assert (told.verb, told.what, told.after, told.by, told.reason) == ("pause", "paused", True, "a command", "by hand")


def test_a_matrix_that_is_paused_does_not_end_before_it_is_done(world: World) -> None:
    subject = {"model": "m000@main"}
    during = at((5, "pause", subject), (5_000, "resume", subject))
    one_by_one = models(2, max_parallel=1)
    result = world.run(one_by_one, RATES, duration_s=None, during=during, plan=matrix(40))
    assert result.stopped_by == "everything is done"
    assert result.status.captured_at - EPOCH > 5_000
    assert {pair: len(numbers) for pair, numbers in world.sequences().items()} == {
        (model, "affine:sat"): 40 for model in ("m000@main", "m001@main")
    }
    assert started_between(world, 10, 5_000, model="m000@main") == 0


def test_a_paused_run_asks_a_matrix_for_nothing_and_ends_when_it_is_drained(world: World) -> None:
    provider = MatrixTaskProvider(("affine:sat",), 100_000)
    during = at((0.5, "pause", {}), (1_000, "drain", {"reason": "maintenance"}))
    plan = {"provider": provider, "stop_when_idle": True}
    result = world.run(models(2), RATES, duration_s=None, during=during, plan=plan)
    assert result.stopped_by == "drained by ops: maintenance"
    assert result.open_tasks < 30_000, "as backpressure has it"
    assert result.samples == len(world.store.samples)


# What is set.


def test_a_rate_is_changed_for_an_environment_a_pair_and_by_factors(world: World) -> None:
    during = at(
        (1_000, "set", {"environment": "affine:sat", "what": "rate", "value": 4_320}),
        (1_000, "set", {"environment": "affine:sat", "model": "m001@main", "what": "rate", "value": 1_080.0}),
        (1_000, "set", {"model": "m000@main", "what": "factor", "value": 0.5}),
    )
    world.run(models(2), RATES, duration_s=3_400, during=during, settings=STEADY)
    per_day = {
        (model, environment): started_between(world, 1_000, 3_400, model=model, environment=environment)
        * 86_400
        / 2_400
        for model in ("m000@main", "m001@main")
        for environment in RATES
    }
    assert per_day == pytest.approx(
        {
            ("m000@main", "affine:sat"): 2_160,
            ("m000@main", "affine:abd"): 4_320,
            ("m001@main", "affine:sat"): 1_080,
            ("m001@main", "affine:abd"): 8_640,
        },
        rel=0.05,
    )


def test_a_cap_and_the_workers_bound_what_is_in_flight_at_once(world: World) -> None:
    most: list[int] = []

    async def during(run: Run, clock: LoopClock) -> None:
        subjects: dict[str, dict[str, Any]] = {"cap": {"model": "m000@main"}, "workers": {}}
        for what, subject in subjects.items():
            await clock.sleep(200)
            await steer(run, "set", what=what, value=2, **subject)
            await clock.sleep(60)
            most.append(max([run._stages.rollouts] + [await _later(clock, run) for _ in range(60)]))
            await steer(run, "set", what=what, value=None, **subject)
        await clock.sleep(200)
        most.append(run._stages.rollouts)
        assert run.status().workers.total == 20

    async def _later(clock: LoopClock, run: Run) -> int:
        await clock.sleep(1)
        return run._stages.rollouts

    busy = {"affine:sat": 86_400.0}
    world.run(models(1), busy, duration_s=900, service=ServiceTime(30.0), during=during, settings=STEADY)
    assert most == [2, 2, 8]


def test_a_budget_of_the_roster_is_replaced(world: World) -> None:
    kept: list[Model] = []

    async def during(run: Run, clock: LoopClock) -> None:
        await clock.sleep(10)
        await steer(run, "set", model="m000@main", what="budget", value=1_000)
        kept.append(run.samplers["m000@main"].model)
        await steer(run, "undo", revision=1)
        kept.append(run.samplers["m000@main"].model)

    world.run(models(1), RATES, duration_s=60, during=during)
    assert [model.budget.daily_tokens for model in kept] == [1_000, None]


# What is ordered.


def test_a_retry_ends_a_pause_for_errors_now(world: World) -> None:
    script = failing("m000", ErrorKind.AUTH, 90)
    during = at((120, "retry", {"model": "m000@main"}))
    world.run(models(1), RATES, duration_s=400, script=script, during=during, settings=STEADY)
    assert len(world.of(ModelPaused)) == len(world.of(ModelResumed)) == 1
    assert started_between(world, 120, 400) > 40


def test_what_is_queued_is_withdrawn_and_sampling_goes_on(world: World) -> None:
    async def during(run: Run, clock: LoopClock) -> None:
        await clock.sleep(1_000)
        queued = run._parts.dispatcher.queued("m000@main")
        said = await steer(run, "withdraw", model="m000@main", environment="affine:sat", dry_run=True)
        assert said["would"].startswith("would withdraw what is queued of m000@main in affine:sat: ")
        assert run._parts.dispatcher.queued("m000@main") == queued
        await steer(run, "withdraw", model="m000@main", environment="affine:sat")
        await clock.sleep(0.5)
        left = [task.environment for task in run._parts.dispatcher.queue.items() if task.model == "m000@main"]
        assert left == ["affine:abd"] * len(left) != []

    one = models(1, max_parallel=1)
    world.run(one, RATES, duration_s=1_200, service=ServiceTime(20.0), during=during, settings=STEADY)
    withdrawn = [event for event in world.of(TaskReturned) if event.reason == "withdrawn by ops"]
    assert len(withdrawn) > 20
    assert {event.environment for event in withdrawn} == {"affine:sat"}


# What is refused, and what is told.


WRONG: list[tuple[dict[str, Any], type[HeadgateError], str]] = [
    ({"verb": "paus"}, InvalidInputError, "there is no verb 'paus'; did you mean 'pause'"),
    ({"verb": "pause", "model": "m00@main"}, NotFoundError, "no model 'm00@main'; did you mean 'm001@main'"),
    ({"verb": "pause", "environment": "affine:sta"}, NotFoundError, "'affine:sta'; did you mean 'affine:sat'"),
    ({"verb": "set", "what": "rates", "value": 1}, InvalidInputError, "'rates' cannot be set; did you mean 'rate'"),
    ({"verb": "set", "what": "rate", "value": 1}, InvalidInputError, "set for an environment, or a model in one"),
    ({"verb": "set", "what": "workers", "value": 0}, InvalidInputError, "a whole number from 1 to 100000"),
    ({"verb": "set", "what": "workers", "value": 2, "model": "m000"}, InvalidInputError, "are set for the whole run"),
    ({"verb": "set", "what": "workers", "value": True}, InvalidInputError, "whole number"),
    ({"verb": "set", "what": "workers", "value": 2.5}, InvalidInputError, "whole number"),
    ({"verb": "set", "what": "cap", "value": 2, "environment": "affine:sat"}, InvalidInputError, "set for a model"),
    ({"verb": "set", "what": "cap", "value": 2, "environment": "affine:sat"}, InvalidInputError, "has the controls"),
    ({"verb": "set", "what": "cap", "value": 2.5, "model": "m000"}, InvalidInputError, "a whole number, such as 2;"),
    ({"verb": "set", "what": "cap", "value": 0, "model": "m000"}, InvalidInputError, "To stop samples, pause;"),
    ({"verb": "drain", "model": "m000@main"}, InvalidInputError, "drain is for the whole run"),
    ({"verb": "retry", "environment": "affine:sat"}, InvalidInputError, "retry is for a model"),
    ({"verb": "undo"}, InvalidInputError, "undo takes the revision of a change"),
    ({"verb": "undo", "revision": 77}, NotFoundError, "there is no change 77"),
    ({"verb": "pause", "reason": "a\x07b"}, InvalidInputError, "a reason must have no control characters"),
    ({"verb": "pause", "reason": "x" * 501}, InvalidInputError, "500 characters"),
    *(
        ({"verb": "set", "what": "rate", "environment": "affine:sat", "value": value}, InvalidInputError, "must be")
        for value in (float("nan"), float("inf"), 0, -1, True, "50")
    ),
]  # fmt: skip


def test_what_cannot_be_is_refused_with_a_sentence_and_changes_nothing(world: World) -> None:
    async def during(run: Run, _: LoopClock) -> None:
        await asyncio.sleep(1)
        for order, kind, said in WRONG:
            for dry_run in (True, False):
                with pytest.raises(kind) as caught:
                    await steer(run, **order, dry_run=dry_run)
                assert said in str(caught.value), order
        assert run.steering.document() == {"controls": [], "log": [], "revision": 0}

    world.run(models(2), RATES, duration_s=30, during=during)
    assert world.of(ControlChanged) == []


def test_each_change_is_said_logged_told_and_entered_into_the_audit_trail(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_AUDIT_FILE", str(tmp_path / "audit.jsonl"))
    said: list[str] = []

    async def during(run: Run, clock: LoopClock) -> None:
        await clock.sleep(60)
        for verb, fields in (
            ("pause", {"model": "m000", "reason": "too slow", "dry_run": True}),
            ("pause", {"model": "m000", "reason": "too slow"}),
            ("pause", {"model": "m000@main"}),
            ("pause", {"reason": "all"}),
            ("resume", {"model": "m000@main", "by": "ada"}),
            ("resume", {"environment": "affine:sat"}),
            ("set", {"what": "workers", "value": 7.0}),
            ("undo", {"revision": 4}),
        ):
            answer = await steer(run, verb, **fields)
            said.append(answer.get("did") or answer["would"])
        with pytest.raises(ControlChangedError, match="was changed meanwhile: resumed model m000@main, by ada"):
            await steer(run, "pause", model="m000", revision=1)
        document = run.steering.document()
        assert [(one["model"], one["what"], one["value"]) for one in document["controls"]] == [(None, "paused", True)]
        assert [one["verb"] for one in document["log"]] == ["undo", "set", "resume", "pause", "pause"]
        status = run.status().models[0]
        assert status.is_paused
        assert status.pause_reason == "the whole run is paused by ops since 2026-01-01 00:01:00 UTC: all"

    world.run(models(1), RATES, duration_s=100, during=during, settings=STEADY)
    since = "since 2026-01-01 00:01:00 UTC"
    assert [text.partition(": samples in progress")[0] for text in said] == [
        "would pause model m000@main",
        "paused model m000@main",
        f"nothing to do: model m000@main is paused by ops {since}: too slow",
        "paused the whole run",
        f"resumed model m000@main; but the whole run is paused by ops {since}: all",
        f"nothing to do: environment affine:sat is not paused; but the whole run is paused by ops {since}: all",
        "set workers of the whole run from default to 7",
        "undid setting workers of the whole run to 7: it is default again",
    ]
    assert [event.revision for event in world.of(ControlChanged)] == [1, 2, 3, 4, 5]
    assert [(one.who, one.what, one.thing) for one in audit_entries()][:2] == [
        ("ops", "controls pause paused", "model m000@main"),
        ("ops", "controls pause paused", "the whole run"),
    ]
