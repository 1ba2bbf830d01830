"""The capacity plan: every value with where it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import Settings, load_settings, setting_fields
from headgate.core import Model
from headgate.core.events import CapacitySource
from headgate.core.status import RequestStatus
from headgate.run.inquiry import CAPACITY_SETTINGS, MAX_NAMED, CapacityPeaks, capacity_plan


def key(number: int, **changes: object) -> RequestStatus:
    fields: dict[str, object] = {
        "provider": "http://p/v1", "model": f"m{number}", "domain": "chat", "models": (f"m{number}@main",), "cap": 8,
        "limit": 6, "in_flight": 2, "waiters": 1, "ceiling": None, "cooldown_s": 0.0, "breaker": "closed",
        "pressure": None, "consecutive_rate_limits": 0, "last_outcome": "success", "retries_denied": 0,
        "peak_in_flight": 7, "peak_waiters": 4,
    }  # fmt: skip
    return RequestStatus(**fields | changes)  # type: ignore[arg-type]


def test_every_setting_says_where_its_value_came_from(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text("batch_size: 7\n")
    settings = load_settings(
        {"queue_max_size": 9_000}, environ={"HEADGATE_NUM_EVALUATION_WORKERS": "3"}, file=file
    ).settings
    configured = capacity_plan(settings, []).configured
    assert (configured["queue_max_size"].value, configured["queue_max_size"].source) == (9_000, CapacitySource.FLAG)
    workers = configured["num_evaluation_workers"]
    assert (workers.value, workers.source) == (3, CapacitySource.ENVIRONMENT)
    assert workers.detail == "HEADGATE_NUM_EVALUATION_WORKERS"
    assert (configured["batch_size"].source, configured["batch_size"].detail) == (CapacitySource.FILE, str(file))
    assert configured["sink_batch_size"].source is CapacitySource.DEFAULT


def test_settings_that_a_program_made_know_only_what_it_gave() -> None:
    configured = capacity_plan(Settings(batch_size=7), []).configured
    assert configured["batch_size"].source is CapacitySource.FLAG
    assert configured["queue_max_size"].source is CapacitySource.DEFAULT


def test_a_value_that_stands_in_for_another_names_it() -> None:
    configured = capacity_plan(Settings(num_evaluation_workers=20, borrow_reserve=0.1), [Model("a")]).configured
    assert (configured["borrow_ceiling"].value, configured["borrow_ceiling"].fallback_from) == (18, "borrow_ceiling")
    default = configured["max_parallel a@main"]
    assert (default.source, default.fallback_from) == (CapacitySource.MODEL, "roster")


def test_a_value_that_is_not_there_says_why() -> None:
    plan = capacity_plan(Settings(), [])
    assert plan.configured["request_queue_wait_s"].missing_reason == "not limited"
    assert plan.runtime["workers_busy"].missing_reason == "no campaign runs"
    assert plan.observed["queued"].missing_reason == "no campaign runs"


def test_limits_in_force_and_the_most_that_was_seen_are_listed_by_request_key() -> None:
    peaks = CapacityPeaks(workers=5, queued=90)
    plan = capacity_plan(Settings(), [], [key(1), key(2, last_outcome="")], workers_busy=4, queued=10, peaks=peaks)
    assert plan.runtime["limit http://p/v1 m1"].value == 6
    assert plan.runtime["limit http://p/v1 m2"].fallback_from == "cap http://p/v1 m2"
    assert plan.observed["in_flight http://p/v1 m1"].value == 7
    assert plan.observed["waiters http://p/v1 m1"].value == 4
    assert (plan.observed["workers"].value, plan.observed["queued"].value) == (5, 90)


def test_the_size_of_a_plan_is_bounded() -> None:
    models = [Model(f"m{number}") for number in range(MAX_NAMED + 30)]
    plan = capacity_plan(Settings(), models, [key(number) for number in range(MAX_NAMED + 5)])
    assert plan.left_out == 35
    assert len(plan.configured) == len(CAPACITY_SETTINGS) + MAX_NAMED


@pytest.mark.parametrize("name", CAPACITY_SETTINGS)
def test_what_is_listed_is_a_setting(name: str) -> None:
    assert name in setting_fields()
