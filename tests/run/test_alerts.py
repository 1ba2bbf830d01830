"""What a run tells of by itself: scores that drop, endpoints that change, and that it stands still."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.core import ChatReply, ErrorKind, Model
from headgate.core.events import EndpointDrifted, ModelPaused, RunMoved, RunStalled, ScoreDropped
from headgate.run import Run
from headgate.simulation import LoopClock, ServiceTime
from tests.run.run_world import World, models

RATES = {"affine:sat": 2_000.0}
STEADY = {"low_sample_threshold": 0}
HOUR_S = 3_600.0


def test_a_drop_is_told_once_and_not_again_by_the_next_run(world: World) -> None:
    async def worsen(_: Run, clock: LoopClock) -> None:
        assert world.chats is not None
        world.chats._skill = 0.95
        await clock.sleep(3 * HOUR_S)
        world.chats._skill = 0.2

    world.run(models(1), RATES, duration_s=6 * HOUR_S, during=worsen, settings=STEADY)
    (drop,) = world.of(ScoreDropped)
    assert (drop.model, drop.environment) == ("m000@main", "affine:sat")
    assert drop.before > 0.85
    assert drop.after < 0.4
    assert drop.low <= drop.after - drop.before <= drop.high < -0.2
    assert 1_767_225_600 + 2.8 * HOUR_S < drop.since < 1_767_225_600 + 3.5 * HOUR_S

    async def stay(_: Run, __: LoopClock) -> None:
        assert world.chats is not None
        world.chats._skill = 0.2

    world.run(models(1), RATES, start_s=6 * HOUR_S, duration_s=2 * HOUR_S, during=stay, settings=STEADY)
    assert len(world.of(ScoreDropped)) == 1


def test_the_next_run_knows_what_the_model_scored_before(world: World) -> None:
    async def good(_: Run, __: LoopClock) -> None:
        assert world.chats is not None
        world.chats._skill = 0.95

    async def bad(_: Run, __: LoopClock) -> None:
        assert world.chats is not None
        world.chats._skill = 0.2

    world.run(models(1), RATES, duration_s=3 * HOUR_S, during=good, settings=STEADY)
    world.run(models(1), RATES, start_s=5 * HOUR_S, duration_s=HOUR_S, during=bad, settings=STEADY)
    (drop,) = world.of(ScoreDropped)
    assert drop.before > 0.85
    quiet = World(world.folder, world.store)
    quiet.run(
        models(1),
        RATES,
        start_s=8 * HOUR_S,
        duration_s=HOUR_S,
        during=good,
        settings=STEADY | {"score_history_days": 0},
    )
    assert quiet.of(ScoreDropped) == []


def test_who_answers_is_stored_and_a_change_is_told_once_however_it_flaps(world: World) -> None:
    async def changing(_: Run, clock: LoopClock) -> None:
        chats = world.chats
        assert chats is not None
        reply, names = chats.reply, iter(["fp_1"] * 20 + ["fp_2", "fp_1"] * 20)

        async def named(model: Model) -> ChatReply:
            return replace(await reply(model), served_model="small-2026", system_fingerprint=next(names, "fp_2"))

        chats.reply = named  # type: ignore[method-assign]

    world.run(models(1), RATES, duration_s=HOUR_S, during=changing, settings=STEADY)
    (drift,) = world.of(EndpointDrifted)
    assert (drift.model, drift.before, drift.after) == ("m000@main", "small-2026 fp_1", "small-2026 fp_2")
    samples = [sample for sample in world.store.samples if sample.served_model]
    assert {sample.served_by for sample in samples} == {"small-2026 fp_1", "small-2026 fp_2"}


def _stuck(until_s: float) -> Any:
    async def during(_: Run, clock: LoopClock) -> None:
        chats = world_of[0].chats
        assert chats is not None
        reply, until = chats.reply, clock.monotonic() + until_s

        async def late(model: Model) -> ChatReply:
            await clock.sleep(max(0.0, until - clock.monotonic()))
            return await reply(model)

        chats.reply = late  # type: ignore[method-assign]

    return during


world_of: list[World] = []


def test_a_run_whose_samples_do_not_end_is_told_once_as_stalled_and_once_as_moving(world: World) -> None:
    world_of[:] = [world]
    settings = STEADY | {"stalled_after_s": 200}
    world.run(models(1), RATES, duration_s=1_200, during=_stuck(500), settings=settings)
    (stalled,) = world.of(RunStalled)
    assert 200 <= stalled.idle_s < 260
    assert stalled.due >= 1
    assert "in progress" in stalled.reason
    (moved,) = world.of(RunMoved)
    assert moved.stalled_for_s == pytest.approx(500, abs=60)


@pytest.mark.parametrize("case", ["nothing is due", "paused", "switched off"])
def test_a_run_that_has_nothing_to_do_is_not_stalled(world: World, case: str) -> None:
    world_of[:] = [world]
    if case == "nothing is due":
        world.run(models(1), {"affine:sat": 4.0}, duration_s=3 * HOUR_S, settings=STEADY)
    elif case == "paused":
        fails = {"script": lambda _, __: ErrorKind.AUTH, "service": ServiceTime(0.1)}
        world.run(models(1), RATES, duration_s=2 * HOUR_S, settings=STEADY | {"error_pause_s": 80_000}, **fails)
        assert world.of(ModelPaused)
    else:
        world.run(models(1), RATES, duration_s=600, during=_stuck(500), settings=STEADY | {"stalled_after_s": 0})
    assert world.of(RunStalled) == []
