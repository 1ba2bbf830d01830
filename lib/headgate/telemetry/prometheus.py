"""Events and status as Prometheus metrics in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headgate.core import events
from headgate.core import status as campaign_status
from headgate.core.status import ModelStatus, RequestStatus
from headgate.telemetry.metrics import EVENT_NAMES, SPECS, STATUS_NAMES
from headgate.telemetry.stream import EventStream, Handler, Recorded

Labels = tuple[str, str, str]

_VALUES: Final[Mapping[str, tuple[Callable[[RequestStatus], float], Callable[[float, float], float]]]] = {
    "headgate_request_limit": (lambda r: r.limit, float.__add__),
    "headgate_request_cap": (lambda r: r.cap, float.__add__),
    "headgate_requests_in_flight": (lambda r: r.in_flight, float.__add__),
    "headgate_request_waiters": (lambda r: r.waiters, float.__add__),
    "headgate_request_cooldown_seconds": (lambda r: r.cooldown_s, max),
    "headgate_request_breaker_open": (lambda r: r.breaker != "closed", float.__add__),
}
"""Metric -> its value, and how the values of the endpoints above the cap are put together."""


def request_values(requests: Sequence[RequestStatus], label_cap: int) -> dict[str, dict[Labels, float]]:
    """Return the values of every gauge by its labels.

    The endpoints that get labels of their own are the first ones in the status, whose order does not change while the
    roster stays the same: no series changes its meaning between two scrapes.
    """
    found: dict[str, dict[Labels, float]] = {name: {} for name in _VALUES}
    for position, request in enumerate(requests):
        is_own = position < label_cap
        labels = (request.provider, request.model, request.domain) if is_own else (OTHER_MODELS,) * 3
        for name, (value_of, joined) in _VALUES.items():
            value = float(value_of(request))
            before = found[name].get(labels)
            found[name][labels] = value if before is None else joined(before, value)
    return found


class RequestCollector(Collector):
    """The gauges of a run's requests, for runs that have no `CampaignStatus`; read at each scrape."""

    def __init__(self, requests: Callable[[], Sequence[RequestStatus]], *, endpoint_label_cap: int = 100) -> None:
        self._requests = requests
        self._endpoint_label_cap = endpoint_label_cap

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Yield the families without their values."""
        yield from (_gauge_family(name) for name in _VALUES)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the families with the values of this moment."""
        for name, series in request_values(self._requests(), self._endpoint_label_cap).items():
            family = _gauge_family(name)
            for labels, value in series.items():
                family.add_metric(labels, value)
            yield family


def _gauge_family(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, SPECS[name].help, labels=SPECS[name].labels)


def budget_values(models: Sequence[ModelStatus], label_cap: int) -> dict[str, dict[tuple[str, str], float]]:
    """Return the values of every gauge by model and budget; those of models above the cap are added up.

    A model has no limit where only its cost is counted.
    """
    used: dict[tuple[str, str], float] = {}
    held: dict[tuple[str, str], float] = {}
    limit: dict[tuple[str, str], float] = {}
    with_budgets = [model for model in models if model.budgets]
    for position, model in enumerate(with_budgets):
        for budget in model.budgets:
            labels = (model.model if position < label_cap else OTHER_MODELS, budget.name)
            used[labels] = used.get(labels, 0.0) + budget.used
            held[labels] = held.get(labels, 0.0) + budget.held
            if budget.limit is not None:
                limit[labels] = limit.get(labels, 0.0) + budget.limit
    return {"headgate_budget_used": used, "headgate_budget_held": held, "headgate_budget_limit": limit}


OTHER_MODELS: Final = "(other)"
"""Label of the models above the cap; no name of a model can have parentheses."""

_BUCKETS_S: Final[Mapping[str, tuple[float, ...]]] = {
    "headgate_episode_latency_seconds": (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200),
    "headgate_queue_wait_seconds": (0.01, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 14_400),
    "headgate_request_wait_seconds": (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    "headgate_request_latency_seconds": (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300),
    "headgate_batch_store_seconds": (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
}


def new_registry(status: Callable[[], campaign_status.CampaignStatus] | None = None) -> CollectorRegistry:
    """Return a registry with the process's own metrics (`process_…`), and the gauges of `status` when it is given."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    if status is not None:
        registry.register(StatusCollector(status))
    return registry


class PrometheusSink:
    """Counts events into `registry`.

    Labels are bounded: environments and outcomes are few by nature; models are labelled one by one up to
    `model_label_cap`, the others together as `(other)`. A model that leaves the roster gives its place back.
    """

    def __init__(self, registry: CollectorRegistry, *, model_label_cap: int = 100) -> None:
        if model_label_cap < 0:
            raise ValueError(f"model_label_cap must be >= 0 (got {model_label_cap})")
        self._model_label_cap = model_label_cap
        self._labelled_models: set[str] = set()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        # Looking a labelled child up takes longer than counting on it.
        self._series: dict[tuple[str, tuple[str, ...]], Callable[[float], None]] = {}
        own = CollectorRegistry()
        for name in EVENT_NAMES:
            spec = SPECS[name]
            if spec.kind == "counter":
                self._counters[name] = Counter(name, spec.help, spec.labels, registry=own)
            else:
                buckets = _BUCKETS_S[name]
                self._histograms[name] = Histogram(name, spec.help, spec.labels, registry=own, buckets=buckets)
        registry.register(_WithoutCreated(own))

    @property
    def handlers(self) -> Mapping[type[events.Event], Handler]:
        """The events that a metric counts."""
        return {
            events.SampleAccepted: self._sample_accepted,
            events.SampleRefused: lambda _: self._count("headgate_samples_refused_total"),
            events.TasksEnqueued: self._tasks_enqueued,
            events.TaskStarted: self._task_started,
            events.TaskReturned: self._task_returned,
            events.DuesForgiven: self._dues_forgiven,
            events.RequestFinished: self._request_finished,
            events.RequestDelayed: self._request_delayed,
            events.RequestRateLimited: lambda _: self._count("headgate_rate_limits_total"),
            events.RequestDenied: self._request_denied,
            events.RequestLimitIncreased: lambda _: self._count("headgate_request_limit_changes_total", "up"),
            events.RequestCeilingRecovered: lambda _: self._count("headgate_request_limit_changes_total", "up"),
            events.RequestFullyRecovered: lambda _: self._count("headgate_request_limit_changes_total", "up"),
            events.RequestLimitDecreased: lambda _: self._count("headgate_request_limit_changes_total", "down"),
            events.RequestCapChanged: lambda _: self._count("headgate_request_cap_changes_total"),
            events.BreakerOpened: lambda _: self._count("headgate_breaker_opens_total"),
            events.RetryDenied: lambda _: self._count("headgate_retries_denied_total"),
            events.SlotsDenied: lambda told: self._count("headgate_slot_denials_total", told.event.limit),
            events.SlotsDisagree: lambda told: self._count("headgate_slot_disagreements_total", told.event.limit),
            events.SlotsLost: self._slots_lost,
            events.TaskDeferred: lambda _: self._count("headgate_tasks_deferred_total"),
            events.ModelPaused: lambda _: self._count("headgate_model_pauses_total"),
            events.QueueWarned: lambda _: self._count("headgate_queue_warnings_total"),
            events.QueuePaused: lambda _: self._count("headgate_queue_pauses_total"),
            events.BatchStored: self._batch_stored,
            events.StoreFailed: lambda _: self._count("headgate_store_failures_total"),
            events.RowsQuarantined: self._rows_quarantined,
            events.RosterRefreshed: self._roster_refreshed,
            events.RosterRefreshFailed: lambda _: self._count("headgate_roster_refresh_failures_total"),
            events.TaskProviderFailed: lambda _: self._count("headgate_task_provider_failures_total"),
            events.JournalBlocked: lambda _: self._count("headgate_journal_blocks_total"),
        }

    def close(self) -> None:
        """The registry keeps what was counted."""

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        series = self._series.get((name, labels))
        if series is None:
            series = self._series[name, labels] = _child(self._counters[name], labels).inc
        series(by)

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        series = self._series.get((name, labels))
        if series is None:
            series = self._series[name, labels] = _child(self._histograms[name], labels).observe
        series(seconds)

    def _sample_accepted(self, recorded: Recorded[events.SampleAccepted]) -> None:
        sample = recorded.event.sample
        outcome = sample.error_kind or ("success" if sample.success else "failure")
        environment = sample.environment
        self._count("headgate_samples_total", environment, outcome)
        self._count("headgate_model_samples_total", self._model_label(sample.model), outcome)
        if sample.score is not None:
            self._count("headgate_scored_samples_total", environment)
            self._count("headgate_score_points_total", environment, by=sample.score)
        self._observe("headgate_episode_latency_seconds", sample.latency_s, environment)
        self._observe("headgate_request_wait_seconds", sample.request_wait_s, environment)

    def _model_label(self, model: str) -> str:
        if model in self._labelled_models:
            return model
        if len(self._labelled_models) >= self._model_label_cap:
            return OTHER_MODELS
        self._labelled_models.add(model)
        return model

    def _tasks_enqueued(self, recorded: Recorded[events.TasksEnqueued]) -> None:
        self._count("headgate_tasks_enqueued_total", by=recorded.event.tasks)

    def _task_started(self, recorded: Recorded[events.TaskStarted]) -> None:
        event = recorded.event
        self._count("headgate_tasks_started_total", event.environment)
        self._observe("headgate_queue_wait_seconds", event.queue_wait_s, event.environment)

    def _task_returned(self, recorded: Recorded[events.TaskReturned]) -> None:
        self._count("headgate_tasks_returned_total", recorded.event.environment)

    def _dues_forgiven(self, recorded: Recorded[events.DuesForgiven]) -> None:
        self._count("headgate_dues_forgiven_total", by=recorded.event.dues)

    def _slots_lost(self, recorded: Recorded[events.SlotsLost]) -> None:
        lost = recorded.event
        self._count("headgate_slots_lost_total", lost.limit, lost.reason, by=lost.slots)

    def _request_finished(self, recorded: Recorded[events.RequestFinished]) -> None:
        event = recorded.event
        self._count("headgate_requests_total", event.outcome)
        self._observe("headgate_request_latency_seconds", event.latency_s, event.outcome)
        self._count("headgate_tokens_total", "prompt", by=event.prompt_tokens)
        self._count("headgate_tokens_total", "completion", by=event.completion_tokens)

    def _request_delayed(self, recorded: Recorded[events.RequestDelayed]) -> None:
        self._count("headgate_request_delays_total", recorded.event.outcome)

    def _request_denied(self, recorded: Recorded[events.RequestDenied]) -> None:
        self._count("headgate_request_denials_total", recorded.event.reason)

    def _batch_stored(self, recorded: Recorded[events.BatchStored]) -> None:
        self._count("headgate_batches_stored_total")
        self._count("headgate_rows_stored_total", by=recorded.event.rows)
        self._observe("headgate_batch_store_seconds", recorded.event.seconds)

    def _rows_quarantined(self, recorded: Recorded[events.RowsQuarantined]) -> None:
        self._count("headgate_rows_quarantined_total", by=recorded.event.rows)

    def _roster_refreshed(self, recorded: Recorded[events.RosterRefreshed]) -> None:
        for model in self._labelled_models.intersection(recorded.event.removed):
            self._labelled_models.discard(model)
            self._counters["headgate_model_samples_total"].remove_by_labels({"model": model})
            self._series = {key: series for key, series in self._series.items() if model not in key[1]}


_T = TypeVar("_T", Counter, Histogram)


def _child(metric: _T, labels: tuple[str, ...]) -> _T:
    return metric.labels(*labels) if labels else metric


class _WithoutCreated(Collector):
    """The families of another registry without their `_created` series, which double what a scrape has to carry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Family]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class StatusCollector(Collector):
    """The gauges of a running campaign, read from its status at each scrape: nothing is counted twice or goes stale."""

    def __init__(
        self,
        status: Callable[[], campaign_status.CampaignStatus],
        *,
        endpoint_label_cap: int = 100,
        model_label_cap: int = 100,
    ) -> None:
        self._status = status
        self._endpoint_label_cap = endpoint_label_cap
        self._model_label_cap = model_label_cap

    def describe(self) -> Iterable[Family]:
        """Yield the families without their values, so that registering does not ask for a status."""
        yield from (_family(name) for name in STATUS_NAMES)

    def collect(self) -> Iterable[Family]:
        """Yield the families with the values of this moment."""
        status = self._status()
        for name, value in _plain_values(status).items():
            family = _family(name)
            family.add_metric((), value)
            yield family
        for name, values in _environment_values(status).items():
            family = _family(name)
            for environment, value in values.items():
                family.add_metric((environment,), value)
            yield family
        for name, series in request_values(status.requests, self._endpoint_label_cap).items():
            family = _family(name)
            for labels, value in series.items():
                family.add_metric(labels, value)
            yield family
        running = _family("headgate_tasks_in_flight")
        for label, tasks in _in_flight(status.models, self._model_label_cap).items():
            running.add_metric((label,), tasks)
        yield running
        for name, budgets in budget_values(status.models, self._model_label_cap).items():
            family = _family(name)
            for labels_of, value in budgets.items():
                family.add_metric(labels_of, value)
            yield family


def _family(name: str) -> GaugeMetricFamily | CounterMetricFamily:
    spec = SPECS[name]
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    return kind(name, spec.help, labels=spec.labels)


def _plain_values(status: campaign_status.CampaignStatus) -> dict[str, float]:
    return {
        "headgate_campaign_start_time_seconds": status.started_at,
        "headgate_models": len(status.models),
        "headgate_models_paused": sum(model.is_paused for model in status.models),
        "headgate_queue_tasks": status.queue.size,
        "headgate_queue_buffered_tasks": status.queue.buffered,
        "headgate_queue_paused": status.queue.is_paused,
        "headgate_workers": status.workers.total,
        "headgate_workers_busy": status.workers.active,
        "headgate_workers_parked": status.workers.parked,
        "headgate_worker_busy_seconds_total": status.workers.busy_s,
        "headgate_spooled_samples": status.spooled,
        "headgate_open_tasks": status.open_tasks,
    }


def _in_flight(models: Sequence[campaign_status.ModelStatus], label_cap: int) -> dict[str, int]:
    others = sum(model.in_flight for model in models[label_cap:])
    return {model.model: model.in_flight for model in models[:label_cap]} | ({OTHER_MODELS: others} if others else {})


def _environment_values(status: campaign_status.CampaignStatus) -> dict[str, dict[str, float]]:
    lag: dict[str, float] = {}
    for pair in status.pairs:
        lag[pair.environment] = max(lag.get(pair.environment, 0.0), pair.lag_s)
    queued = dict.fromkeys(lag, 0.0) | dict(status.queue.by_environment)
    return {"headgate_queue_environment_tasks": queued, "headgate_lag_seconds": lag}


def register_losses(registry: CollectorRegistry, stream: EventStream) -> None:
    """Have `registry` say at each scrape what the sinks of `stream` lost so far."""
    registry.register(_LossCollector(stream))


class _LossCollector(Collector):
    """Reads the counts of a stream. A sink that closed is counted no more."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    def describe(self) -> Iterable[Family]:
        """Return the families without values."""
        return (_loss_family("headgate_events_dropped_total"), _loss_family("headgate_sink_failures_total"))

    def collect(self) -> Iterable[Family]:
        """Return the counts by sink."""
        dropped, failures = _loss_family("headgate_events_dropped_total"), _loss_family("headgate_sink_failures_total")
        for name, count in self._stream.dropped().items():
            dropped.add_metric((name,), count)
        for name, count in self._stream.failures_by_sink().items():
            failures.add_metric((name,), count)
        return (dropped, failures)


def _loss_family(name: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, SPECS[name].help, labels=SPECS[name].labels)
