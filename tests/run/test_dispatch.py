"""The dispatcher that a campaign's settings make."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.config import LoadedSettings, load_settings
from headgate.core import ChatReply, HolderId, Model
from headgate.core.errors import InvalidSettingError
from headgate.environments.shares import MODEL
from headgate.run.dispatch import dispatcher_of
from headgate.run.matrix import MatrixTaskProvider
from headgate.scheduling import Dispatch
from headgate.simulation import ScriptedChats
from tests.run import run_world
from tests.run.run_world import World, models
from tests.scheduling.queued import task


def _loaded(**flags: str) -> LoadedSettings:
    return load_settings(dict(flags), environ={})


@pytest.mark.parametrize(("flags", "held"), [({}, {"a": 5, "b": 3}), ({"group_cap": "4"}, {"a": 4, "b": 4})])
def test_a_group_cap_leaves_freed_workers_to_models_below_it(flags: dict[str, str], held: dict[str, int]) -> None:
    settings = _loaded(num_evaluation_workers="8", **flags).settings
    dispatcher = dispatcher_of(settings, HolderId("h"))
    for model in held:
        dispatcher.set_model(model, 8)
    dispatcher.enqueue([task(f"a{i}", "a") for i in range(9)])
    started = [dispatcher.next(0.0) for _ in range(3)]
    dispatcher.enqueue([task(f"b{i}", "b") for i in range(9)])
    while isinstance(granted := dispatcher.next(1.0), Dispatch):
        started.append(granted)
    assert Counter(one.task.model for one in started if isinstance(one, Dispatch)) == held


def test_a_group_cap_beside_shares_by_weight_is_refused_and_says_what_to_set() -> None:
    with pytest.raises(InvalidSettingError, match=r"group_cap belongs to strict_fair; .* borrow_ceiling"):
        _loaded(group_cap="2", task_admission="bounded_borrow")


class _SlowModels(ScriptedChats):
    """Models that take 200 s for a reply, but for the last one, which takes 5 s."""

    async def reply(self, model: Model) -> ChatReply:
        await self._clock.sleep(5.0 if model.name == "m009" else 200.0)
        return await super().reply(model)


@pytest.mark.parametrize("policy", ["strict_fair", "bounded_borrow"])
def test_nine_models_with_slow_replies_hold_up_the_samples_of_a_tenth_for_two_replies_and_not_for_each(
    world: World, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_world, "ScriptedChats", _SlowModels)
    world.run(
        models(10, max_parallel=16),
        {"affine:sat": 100.0},
        duration_s=None,
        settings={"num_evaluation_workers": 10, "task_admission": policy},
        plan={"provider": MatrixTaskProvider(["affine:sat"], 20), "stop_when_idle": True},
    )
    ended = [s.finished_at for s in world.samples_of("m009@main")]
    began = min(s.started_at for s in world.store.samples)
    assert len(ended) == 20
    assert max(ended) - began < 2 * 200.0 + 20 * 6.0


def test_what_an_environment_has_few_of_is_taken_in_the_name_of_the_model(world: World) -> None:
    seen = []
    world.run(models(2), {"affine:sat": 100.0}, script=lambda model, _at: seen.append((model.key, MODEL.get())))
    assert set(seen) == {("m000@main", "m000@main"), ("m001@main", "m001@main")}
