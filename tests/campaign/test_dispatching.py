"""The dispatcher that a campaign's settings make."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.campaign.dispatching import dispatcher_of
from headgate.config import LoadedSettings, load_settings
from headgate.core import HolderId
from headgate.core.errors import InvalidSettingError
from headgate.scheduling import Dispatch
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
