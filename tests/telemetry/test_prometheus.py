from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headgate.core import events
from headgate.core.status import BudgetStatus, RateStatus
from headgate.telemetry import METRICS, EventStream, PrometheusSink, new_registry, register_losses
from headgate.telemetry.metrics import SPECS, STATUS_NAMES
from headgate.telemetry.prometheus import StatusCollector
from tests.telemetry.factories import START, FixedClock, request_status, sample, status

ATTEMPT = ("http://one/v1", "m", "chat", "m@main", "r-1", 1, "t-1", "0" * 32)
LIMIT = ("http://one/v1", "m", "chat")


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def label_cap(monkeypatch):
    """Sets how many models and endpoints get labels of their own."""
    return partial(monkeypatch.setattr, "headgate.telemetry.prometheus.LABEL_CAP")


def counted(registry, *emitted):
    stream = EventStream(FixedClock(), [PrometheusSink(registry)])
    for event in emitted:
        stream.emit(event)
    assert not stream.failures
    return registry.get_sample_value


def test_samples_are_counted_by_environment_and_outcome(registry):
    value = counted(
        registry,
        events.SampleAccepted(sample()),
        events.SampleAccepted(sample(success=False, score=0.25)),
        events.SampleAccepted(sample(success=False, score=None, error_kind="provider_timeout")),
    )
    by_outcome = {
        outcome: value("headgate_samples_total", {"environment": "affine:sat", "outcome": outcome})
        for outcome in ("success", "failure", "provider_timeout")
    }
    assert by_outcome == {"success": 1, "failure": 1, "provider_timeout": 1}


def test_the_mean_score_can_be_taken_from_the_counters_without_the_unscored(registry):
    value = counted(
        registry,
        events.SampleAccepted(sample(score=1.0)),
        events.SampleAccepted(sample(score=0.5)),
        events.SampleAccepted(sample(score=None, success=False, error_kind="auth")),
    )
    labels = {"environment": "affine:sat"}
    assert value("headgate_score_points_total", labels) == 1.5
    assert value("headgate_scored_samples_total", labels) == 2


def test_durations_are_histograms_in_seconds(registry):
    value = counted(
        registry,
        events.SampleAccepted(sample(latency_s=2.0)),
        events.TaskStarted("t-1", "a@main", "affine:sat", 0.25, "0" * 32),
        events.RequestFinished("a@main", "success", 0.2, 200, 100, 20),
        events.BatchStored("b-1", 300, 2, 0.3),
    )
    labels = {"environment": "affine:sat"}
    assert value("headgate_episode_latency_seconds_sum", labels) == 2.0
    assert value("headgate_episode_latency_seconds_bucket", labels | {"le": "1.0"}) == 0
    assert value("headgate_episode_latency_seconds_bucket", labels | {"le": "2.5"}) == 1
    assert value("headgate_queue_wait_seconds_sum", labels) == 0.25
    assert value("headgate_request_latency_seconds_count", {"outcome": "success"}) == 1
    assert value("headgate_tokens_total", {"kind": "prompt"}) == 100
    assert value("headgate_batch_store_seconds_count") == 1
    assert value("headgate_rows_stored_total") == 300


def test_models_above_the_cap_share_a_label(registry, label_cap):
    label_cap(2)
    emitted = [events.SampleAccepted(sample(model=f"acme/m{number}@main")) for number in (1, 2, 3, 4, 1)]
    value = counted(registry, *emitted)
    labels = [{"model": name, "outcome": "success"} for name in ("acme/m1@main", "acme/m2@main", "(other)")]
    assert [value("headgate_model_samples_total", label) for label in labels] == [2, 1, 2]


def test_a_model_that_leaves_the_roster_gives_its_label_to_another(registry, label_cap):
    label_cap(1)
    value = counted(
        registry,
        events.SampleAccepted(sample(model="acme/old@main")),
        events.RosterRefreshed(1, ("acme/new@main",), ("acme/old@main", "never/seen@main"), 0),
        events.SampleAccepted(sample(model="acme/new@main")),
    )
    assert value("headgate_model_samples_total", {"model": "acme/old@main", "outcome": "success"}) is None
    assert value("headgate_model_samples_total", {"model": "acme/new@main", "outcome": "success"}) == 1


@pytest.mark.parametrize(
    ("event", "name", "labels", "value"),
    [
        (events.SampleRefused("t", "m", "e", "stale"), "headgate_samples_refused_total", {}, 1),
        (events.TasksEnqueued("m", 50, 99), "headgate_tasks_enqueued_total", {}, 50),
        (events.TaskStarted("t", "m", "e", 1, "0"), "headgate_tasks_started_total", {"environment": "e"}, 1),
        (events.TaskReturned("t", "m", "e", "drain"), "headgate_tasks_returned_total", {"environment": "e"}, 1),
        (events.DuesForgiven("m", "e", 7), "headgate_dues_forgiven_total", {}, 7),
        (events.RequestDelayed("m", "auth", 1, 1), "headgate_request_delays_total", {"outcome": "auth"}, 1),
        (events.ModelPaused("m", 1, 900, 3, 0, ""), "headgate_model_pauses_total", {}, 1),
        (events.QueueWarned(1, 1), "headgate_queue_warnings_total", {}, 1),
        (events.QueuePaused(1, 1), "headgate_queue_pauses_total", {}, 1),
        (events.StoreFailed("b", 1, "", 1, 1), "headgate_store_failures_total", {}, 1),
        (events.RowsQuarantined("b", 4, "p", "r"), "headgate_rows_quarantined_total", {}, 4),
        (events.RosterRefreshFailed("", 1), "headgate_roster_refresh_failures_total", {}, 1),
        (events.TaskProviderFailed("", 1), "headgate_task_provider_failures_total", {}, 1),
        (events.JournalBlocked(""), "headgate_journal_blocks_total", {}, 1),
        (events.RequestRateLimited(*ATTEMPT, "r-1-1", 2.0, 2.0), "headgate_rate_limits_total", {}, 1),
        (
            events.RequestDenied(*ATTEMPT, "queue_timeout", None, ""),
            "headgate_request_denials_total",
            {"reason": "queue_timeout"},
            1,
        ),
        (
            events.RequestLimitDecreased(*LIMIT, 8, 4, "decreased", 8),
            "headgate_request_limit_changes_total",
            {"direction": "down"},
            1,
        ),
        (
            events.RequestLimitIncreased(*LIMIT, 4, 5, "increased"),
            "headgate_request_limit_changes_total",
            {"direction": "up"},
            1,
        ),
        (
            events.RequestFullyRecovered(*LIMIT, 7, 8),
            "headgate_request_limit_changes_total",
            {"direction": "up"},
            1,
        ),
        (events.RequestCapChanged("p", "m", 8, 4), "headgate_request_cap_changes_total", {}, 1),
        (events.BreakerOpened("p", "m", 5.0, 5), "headgate_breaker_opens_total", {}, 1),
        (events.SlotsDenied("l", 8, 16), "headgate_slot_denials_total", {"limit": "l"}, 1),
        (events.SlotsLost("l", 8, 0, "expired"), "headgate_slots_lost_total", {"limit": "l", "reason": "expired"}, 8),
        (events.SlotsDisagree("l", 9, 8), "headgate_slot_disagreements_total", {"limit": "l"}, 1),
        (events.RetryDenied("m", "connection", 2), "headgate_retries_denied_total", {}, 1),
        (events.TaskDeferred("t", "m", "e", "429", 1), "headgate_tasks_deferred_total", {}, 1),
    ],
)
def test_each_event_counts_in_its_metric(registry, event, name, labels, value):
    assert counted(registry, event)(name, labels) == value


def test_gauges_are_read_from_the_status_at_each_scrape():
    moment = [status()]
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: moment[0]))
    value = registry.get_sample_value
    assert value("headgate_queue_tasks") == 1234
    assert value("headgate_queue_environment_tasks", {"environment": "affine:sat"}) == 1000
    assert value("headgate_models_paused") == 1
    assert value("headgate_workers_busy") == 19
    assert value("headgate_spooled_samples") == 56
    assert value("headgate_lag_seconds", {"environment": "agentgym:babyai"}) == 120
    assert value("headgate_campaign_start_time_seconds") == START
    moment[0] = status(spooled=0)
    assert value("headgate_spooled_samples") == 0


def test_the_admission_of_requests_is_read_from_the_status_by_endpoint():
    registry = CollectorRegistry()
    moment = status(requests=(request_status(1), request_status(2, breaker="open", limit=1)))
    registry.register(StatusCollector(lambda: moment))
    first, second = ({"provider": f"http://provider-{n}/v1", "model": f"model-{n}", "domain": "chat"} for n in (1, 2))
    value = registry.get_sample_value
    assert value("headgate_request_limit", first) == 4
    assert value("headgate_request_cap", first) == 8
    assert value("headgate_requests_in_flight", first) == 3
    assert value("headgate_request_waiters", first) == 2
    assert value("headgate_request_cooldown_seconds", first) == 1.5
    assert [value("headgate_request_breaker_open", labels) for labels in (first, second)] == [0, 1]


def test_endpoints_above_the_cap_share_a_label_and_are_added_up(label_cap):
    label_cap(2)
    registry = CollectorRegistry()
    requests = tuple(request_status(n, cooldown_s=float(n), breaker="open") for n in range(5))
    registry.register(StatusCollector(lambda: status(requests=requests)))
    other = dict.fromkeys(("provider", "model", "domain"), "(other)")
    value = registry.get_sample_value
    assert value("headgate_request_limit", other) == 3 * 4
    assert value("headgate_request_cooldown_seconds", other) == 4.0
    assert value("headgate_request_breaker_open", other) == 3


def test_limits_per_minute_are_told_once_however_many_endpoints_they_hold_for(label_cap):
    label_cap(1)
    registry = CollectorRegistry()
    rates = tuple(
        RateStatus(scope, "tokens_per_minute", 100.0, share, 30.0, 0.0, is_told=False)
        for scope, share in (("organisation acme", 0.5), ("key of a", 0.5), ("key of b", 0.25))
    )
    requests = (request_status(1, rates=rates[:2]), request_status(2, rates=rates))
    registry.register(StatusCollector(lambda: status(requests=requests)))
    own, other = ({"scope": scope, "unit": "tokens_per_minute"} for scope in ("organisation acme", "(other)"))
    names = ("headgate_rate_limit", "headgate_rate_left", "headgate_rate_share")
    assert [registry.get_sample_value(name, own) for name in names] == [100, 30, 0.5]
    assert [registry.get_sample_value(name, other) for name in names] == [200, 60, 0.25]


def test_registering_the_collector_asks_for_no_status():
    def no_status():
        raise AssertionError("asked for a status")

    CollectorRegistry().register(StatusCollector(no_status))


def test_the_table_names_every_metric_that_is_exported_and_no_other():
    registry = new_registry(status)
    register_losses(registry, EventStream(FixedClock()))
    counted(registry, events.SampleAccepted(sample()))
    text = generate_latest(registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    exported = {
        name + ("_total" if family.type == "counter" else ""): family
        for name, family in families.items()
        if name.startswith("headgate_")
    }
    assert set(exported) == set(METRICS)
    assert {name: family.documentation for name, family in exported.items()} == METRICS
    assert {name: family.type for name, family in exported.items()} == {name: SPECS[name].kind for name in SPECS}


def test_names_follow_the_conventions():
    known = {
        "environment",
        "outcome",
        "model",
        "kind",
        "reason",
        "direction",
        "provider",
        "domain",
        "sink",
        "limit",
        "budget",
        "scope",
        "unit",
    }
    for name in METRICS:
        spec = SPECS[name]
        assert name.endswith("_total") == (spec.kind == "counter"), name
        assert name.endswith("_seconds") or spec.kind != "histogram", name
        assert set(spec.labels) <= known, name
        assert spec.help.endswith("."), name


def test_the_process_is_measured_too():
    assert new_registry().get_sample_value("process_resident_memory_bytes") > 0
    assert STATUS_NAMES


def test_running_tasks_are_a_gauge_by_model_and_those_above_the_cap_are_added_up(registry, label_cap):
    label_cap(1)
    models = tuple(replace(status().models[0], model=f"m{number}@main", in_flight=number) for number in (1, 2, 3))
    registry.register(StatusCollector(lambda: replace(status(), models=models)))
    one, others = (
        registry.get_sample_value("headgate_tasks_in_flight", {"model": name}) for name in ("m1@main", "(other)")
    )
    assert (one, others) == (1, 5)


def test_budgets_are_gauges_by_model_and_those_above_the_cap_are_added_up(registry, label_cap):
    label_cap(1)
    models = tuple(
        replace(
            status().models[0],
            model=f"m{number}@main",
            budgets=(
                BudgetStatus("daily_tokens", 100.0 * number, 7.0, 1_000.0),
                BudgetStatus("daily_cost", 0.5, 0, None),
            ),
        )
        for number in (1, 2, 3)
    )
    registry.register(StatusCollector(lambda: replace(status(), models=models)))
    value = registry.get_sample_value
    one, others = ({"model": name, "budget": "daily_tokens"} for name in ("m1@main", "(other)"))
    assert [value("headgate_budget_used", labels) for labels in (one, others)] == [100, 500]
    assert [value("headgate_budget_held", labels) for labels in (one, others)] == [7, 14]
    assert [value("headgate_budget_limit", labels) for labels in (one, others)] == [1_000, 2_000]
    cost = {"model": "m1@main", "budget": "daily_cost"}
    assert value("headgate_budget_used", cost) == 0.5
    assert value("headgate_budget_limit", cost) is None, "it is counted and not limited"
