"""Every event kind of the earlier scheduler has a counterpart that exists and that something tells."""

from __future__ import annotations

import re

from headgate.core import events
from tests.docs.pages import DOCS
from tests.house.tree import ROOT


def _words(text: str) -> list[str]:
    return text.split()


SCHEDULER = _words("""
    scheduler_job_started scheduler_job_completed scheduler_health_snapshot dependency_ready ready_enqueued
    row_group_admitted row_group_admission_blocked row_group_admission_target_changed row_group_checkpointed selected
    queue_empty admission_blocked group_capped request_pressure_advisory_skipped task_lease_acquired admission_denied
    worker_spawned worker_spawn_failed stale_selection retry_deferred non_retryable_dropped cancelled
    salvage_redispatched queue_drained task_completed task_lease_released release_diagnostic
""")
REQUEST = _words("""
    request_resource_registered request_effective_cap_changed request_queue_formed request_wait_started
    request_wait_completed request_wait_timeout request_wait_cancelled request_acquire_denied request_lease_acquired
    model_request_started model_request_completed request_queue_drained request_rate_limited request_limit_decreased
    request_limit_increased request_soft_ceiling_recovered request_fully_recovered request_lease_released
    request_release_diagnostic
""")

ROWS = dict(
    re.findall(
        r"^\| `(\w+)` \| (.+?) \| (?:always|traced) \|$", (DOCS / "reference/event-kinds.md").read_text(), re.MULTILINE
    )
)
TARGETS = {name for cell in ROWS.values() for name in re.findall(r"\[`(\w+)`\]", cell)}


def test_all_27_and_19_kinds_are_listed_once_in_their_order() -> None:
    assert (len(SCHEDULER), len(REQUEST)) == (27, 19)
    assert list(ROWS) == SCHEDULER + REQUEST


def test_every_kind_has_a_counterpart() -> None:
    assert [kind for kind, cell in ROWS.items() if not re.search(r"\[`\w+`\]", cell)] == []


def test_every_counterpart_is_an_event_that_something_tells() -> None:
    assert [name for name in TARGETS if not issubclass(getattr(events, name), events.Event)] == []
    code = "\n".join(path.read_text() for path in (ROOT / "lib").rglob("*.py") if "core/events" not in str(path))
    told = {*re.findall(r"\b(\w+)\(", code), *re.findall(r"\btell\(\s*events\.(\w+)", code)}
    assert TARGETS - told == set(), "nothing makes these"
