"""Events and status as Prometheus metrics in a separate registry."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from headgate.core import events
from headgate.core import status as campaign_status
from headgate.core.status import ModelStatus, RateStatus, RequestStatus
from headgate.telemetry.metrics import EVENT_NAMES, LOSS_NAMES, SPECS, STATUS_NAMES
from headgate.telemetry.stream import EventStream, Handler, Recorded

Series = dict[tuple[str, ...], float]
"""The values of a metric by its labels."""

_Gauge = tuple[Callable[[Any], float], Callable[[float, float], float]]

_VALUES: Final[Mapping[str, _Gauge]] = {
    "headgate_request_limit": (lambda r: r.limit, float.__add__),
    "headgate_request_cap": (lambda r: r.cap, float.__add__),
    "headgate_requests_in_flight": (lambda r: r.in_flight, float.__add__),
    "headgate_request_waiters": (lambda r: r.waiters, float.__add__),
    "headgate_request_cooldown_seconds": (lambda r: r.cooldown_s, max),
    "headgate_request_breaker_open": (lambda r: r.breaker != "closed", float.__add__),
}
"""Metric -> its value, and how the values of endpoints above the cap are combined."""

_RATES: Final[Mapping[str, _Gauge]] = {
    "headgate_rate_limit": (lambda r: r.limit, float.__add__),
    "headgate_rate_left": (lambda r: r.left, float.__add__),
    "headgate_rate_share": (lambda r: r.share, min),
}
"""The same for limits per minute, each of which may apply to many endpoints."""


def _request_values(requests: Sequence[RequestStatus]) -> dict[str, Series]:
    """Return the gauges of request keys, and of the limits per minute that apply to them.

    The first endpoints in the status get their own labels. Their order does not change while the roster stays the same,
    so no series changes its meaning between two scrapes.
    """
    found: dict[str, Series] = {name: {} for name in (*_VALUES, *_RATES)}

    def put(gauges: Mapping[str, _Gauge], labels: tuple[str, ...], one: RequestStatus | RateStatus) -> None:
        for name, (value_of, joined) in gauges.items():
            value, before = float(value_of(one)), found[name].get(labels)
            found[name][labels] = value if before is None else joined(before, value)

    for position, request in enumerate(requests):
        labels = (request.provider, request.model, request.domain)
        put(_VALUES, labels if position < LABEL_CAP else (OTHER_MODELS,) * 3, request)
    rates = {(rate.scope, rate.unit): rate for request in requests for rate in request.rates}
    for position, (own, rate) in enumerate(rates.items()):
        put(_RATES, own if position < LABEL_CAP else (OTHER_MODELS, rate.unit), rate)
    return found


def _budget_values(models: Sequence[ModelStatus]) -> dict[str, Series]:
    """Return the gauges of budgets, added up for models above the cap.

    A budget without a limit only counts the cost.
    """
    found: dict[str, Series] = {f"headgate_budget_{what}": {} for what in ("used", "held", "limit")}
    for position, model in enumerate(model for model in models if model.budgets):
        for budget in model.budgets:
            labels = (model.model if position < LABEL_CAP else OTHER_MODELS, budget.name)
            for what, value in (("used", budget.used), ("held", budget.held), ("limit", budget.limit)):
                if value is not None:
                    series = found[f"headgate_budget_{what}"]
                    series[labels] = series.get(labels, 0.0) + value
    return found


LABEL_CAP: Final = 100
"""Maximum number of models, and of endpoints, with their own labels."""

OTHER_MODELS: Final = "(other)"
"""Label of the models above the cap; a model's name cannot contain parentheses."""

_BUCKETS_S: Final[Mapping[str, tuple[float, ...]]] = {
    "headgate_episode_latency_seconds": (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200),
    "headgate_queue_wait_seconds": (0.01, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 14_400),
    "headgate_request_wait_seconds": (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    "headgate_request_latency_seconds": (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300),
    "headgate_batch_store_seconds": (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
}


_COUNTED: Final[Mapping[type[events.Event], tuple[str, ...]]] = {
    events.SampleRefused: ("headgate_samples_refused_total",),
    events.TasksEnqueued: ("headgate_tasks_enqueued_total", "tasks"),
    events.TaskReturned: ("headgate_tasks_returned_total",),
    events.TaskDeferred: ("headgate_tasks_deferred_total",),
    events.DuesForgiven: ("headgate_dues_forgiven_total", "dues"),
    events.RequestDelayed: ("headgate_request_delays_total",),
    events.RequestRateLimited: ("headgate_rate_limits_total",),
    events.RequestDenied: ("headgate_request_denials_total",),
    events.RequestCapChanged: ("headgate_request_cap_changes_total",),
    events.BreakerOpened: ("headgate_breaker_opens_total",),
    events.RetryDenied: ("headgate_retries_denied_total",),
    events.SlotsDenied: ("headgate_slot_denials_total",),
    events.SlotsDisagree: ("headgate_slot_disagreements_total",),
    events.SlotsLost: ("headgate_slots_lost_total", "slots"),
    events.ModelPaused: ("headgate_model_pauses_total",),
    events.QueueWarned: ("headgate_queue_warnings_total",),
    events.QueuePaused: ("headgate_queue_pauses_total",),
    events.StoreFailed: ("headgate_store_failures_total",),
    events.RowsQuarantined: ("headgate_rows_quarantined_total", "rows"),
    events.RosterRefreshFailed: ("headgate_roster_refresh_failures_total",),
    events.TaskProviderFailed: ("headgate_task_provider_failures_total",),
    events.JournalBlocked: ("headgate_journal_blocks_total",),
}
"""Event -> the metric that counts it, and the field with the amount; the metric's labels are fields, too."""

_LIMIT_CHANGES: Final = (
    events.RequestLimitIncreased,
    events.RequestLimitDecreased,
    events.RequestCeilingRecovered,
    events.RequestFullyRecovered,
)


def new_registry(status: Callable[[], campaign_status.CampaignStatus] | None = None) -> CollectorRegistry:
    """Return a registry with the process's metrics (`process_…`), and the gauges of `status` if given."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    if status is not None:
        registry.register(StatusCollector(status))
    return registry


class Durations:
    """A histogram of durations. Owned by a `PrometheusSink`.

    Attributes:
        counts: counts by bucket, not cumulative.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.seconds = 0.0

    def buckets(self, bounds: Sequence[float]) -> list[tuple[str, float]]:
        """Return the upper bound of each bucket with its cumulative count."""
        return list(zip(map(floatToGoString, (*bounds, math.inf)), accumulate(self.counts), strict=True))


class PrometheusSink(Collector):
    """Counts events, and reports the counts to `registry` at each scrape.

    Labels are bounded: there are few environments and outcomes; up to `LABEL_CAP` models get their own label, the
    others share `(other)`. A model that leaves the roster frees its label.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._labelled_models: set[str] = set()
        self._lock = threading.Lock()  # events come from any thread
        self._counts: dict[str, Series] = {name: {} for name in EVENT_NAMES if name not in _BUCKETS_S}
        self._durations: dict[str, dict[tuple[str, ...], Durations]] = {name: {} for name in _BUCKETS_S}
        # Metrics without labels are reported from the start, with 0.
        for name in EVENT_NAMES:
            if SPECS[name].labels:
                continue
            if name in _BUCKETS_S:
                self._durations[name][()] = Durations(len(_BUCKETS_S[name]) + 1)
            else:
                self._counts[name][()] = 0.0
        self.handlers: Mapping[type[events.Event], Handler] = {
            events.SampleAccepted: self._sample_accepted,
            events.TaskStarted: self._task_started,
            events.RequestFinished: self._request_finished,
            events.BatchEnded: self._batch_ended,
            events.BatchStored: self._batch_stored,
            events.RosterRefreshed: self._roster_refreshed,
            **dict.fromkeys(_LIMIT_CHANGES, self._limit_changed),
            **{kind: self._counting(*counted) for kind, counted in _COUNTED.items()},
        }
        registry.register(self)

    def describe(self) -> Iterable[Family]:
        """Yield the families without values."""
        yield from map(_family, EVENT_NAMES)

    def collect(self) -> Iterable[Family]:
        """Yield the counts so far."""
        for name, counts in self._counts.items():
            yield _filled(name, counts)
        for name, durations in self._durations.items():
            family = HistogramMetricFamily(name, SPECS[name].help, labels=SPECS[name].labels)
            for labels, one in list(durations.items()):
                family.add_metric(labels, one.buckets(_BUCKETS_S[name]), one.seconds)
            yield family

    def close(self) -> None:
        """Do nothing: the registry keeps the counts."""

    def _counting(self, name: str, amount: str = "") -> Handler:
        labels = SPECS[name].labels

        def count(recorded: Recorded[Any]) -> None:
            event = recorded.event
            by = getattr(event, amount) if amount else 1
            with self._lock:
                self._count(name, *(getattr(event, label) for label in labels), by=by)

        return count

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter; like `_observe`, call it under the lock."""
        series = self._counts[name]
        series[labels] = series.get(labels, 0.0) + by

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        series, bounds = self._durations[name], _BUCKETS_S[name]
        durations = series.get(labels)
        if durations is None:
            durations = series[labels] = Durations(len(bounds) + 1)
        durations.seconds += seconds
        durations.counts[bisect_left(bounds, seconds)] += 1

    def _sample_accepted(self, recorded: Recorded[events.SampleAccepted]) -> None:
        sample = recorded.event.sample
        outcome = sample.error_kind or ("success" if sample.success else "failure")
        environment = sample.environment
        with self._lock:
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
        if len(self._labelled_models) >= LABEL_CAP:
            return OTHER_MODELS
        self._labelled_models.add(model)
        return model

    def _task_started(self, recorded: Recorded[events.TaskStarted]) -> None:
        event = recorded.event
        with self._lock:
            self._count("headgate_tasks_started_total", event.environment)
            self._observe("headgate_queue_wait_seconds", event.queue_wait_s, event.environment)

    def _request_finished(self, recorded: Recorded[events.RequestFinished]) -> None:
        event = recorded.event
        with self._lock:
            self._count("headgate_requests_total", event.outcome)
            self._observe("headgate_request_latency_seconds", event.latency_s, event.outcome)
            self._count("headgate_tokens_total", "prompt", by=event.prompt_tokens)
            self._count("headgate_tokens_total", "completion", by=event.completion_tokens)

    def _batch_ended(self, recorded: Recorded[events.BatchEnded]) -> None:
        with self._lock:
            self._count("headgate_tokens_total", "prompt", by=recorded.event.prompt_tokens)
            self._count("headgate_tokens_total", "completion", by=recorded.event.completion_tokens)

    def _limit_changed(self, recorded: Recorded[events.Event]) -> None:
        is_lower = isinstance(recorded.event, events.RequestLimitDecreased)
        with self._lock:
            self._count("headgate_request_limit_changes_total", "down" if is_lower else "up")

    def _batch_stored(self, recorded: Recorded[events.BatchStored]) -> None:
        with self._lock:
            self._count("headgate_batches_stored_total")
            self._count("headgate_rows_stored_total", by=recorded.event.rows)
            self._observe("headgate_batch_store_seconds", recorded.event.seconds)

    def _roster_refreshed(self, recorded: Recorded[events.RosterRefreshed]) -> None:
        for model in self._labelled_models.intersection(recorded.event.removed):
            self._labelled_models.discard(model)
            series = self._counts["headgate_model_samples_total"]
            for labels in [labels for labels in series.copy() if labels[0] == model]:
                del series[labels]


class _Gauges(Collector):
    """Families whose values are read at each scrape, so that none is counted twice or goes stale."""

    def __init__(self, names: Sequence[str], values: Callable[[], Mapping[str, Series]]) -> None:
        self._names = names
        self._values = values

    def describe(self) -> Iterable[Family]:
        yield from map(_family, self._names)

    def collect(self) -> Iterable[Family]:
        for name, series in self._values().items():
            yield _filled(name, series)


class StatusCollector(_Gauges):
    """The gauges of a running campaign, read from its status."""

    def __init__(self, status: Callable[[], campaign_status.CampaignStatus]) -> None:
        super().__init__(STATUS_NAMES, lambda: _status_values(status()))


class RequestCollector(_Gauges):
    """The gauges of requests, for servers without a `CampaignStatus`."""

    def __init__(self, requests: Callable[[], Sequence[RequestStatus]]) -> None:
        super().__init__((*_VALUES, *_RATES), lambda: _request_values(requests()))


def register_losses(registry: CollectorRegistry, stream: EventStream) -> None:
    """Make `registry` report at each scrape what the open sinks of `stream` have lost so far."""

    def losses() -> dict[str, Series]:
        counts = (stream.dropped(), stream.failures_by_sink())
        return {name: {(sink,): lost for sink, lost in by.items()} for name, by in zip(LOSS_NAMES, counts, strict=True)}

    registry.register(_Gauges(LOSS_NAMES, losses))


def _family(name: str) -> Family:
    spec = SPECS[name]
    return Family(name, spec.help, spec.kind)


def _filled(name: str, series: Series) -> Family:
    spec = SPECS[name]
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    family = kind(name, spec.help, labels=spec.labels)
    for labels, value in series.copy().items():
        family.add_metric(labels, value)
    return family


def _status_values(status: campaign_status.CampaignStatus) -> dict[str, Series]:
    plain = {
        "headgate_campaign_start_time_seconds": status.started_at,
        "headgate_models": len(status.models),
        "headgate_models_paused": sum(model.is_paused for model in status.models),
        "headgate_queue_tasks": status.queue.size,
        "headgate_queue_buffered_tasks": status.queue.buffered,
        "headgate_queue_paused": status.queue.is_paused,
        "headgate_workers": status.workers.total,
        "headgate_workers_busy": status.workers.active,
        "headgate_workers_parked": status.workers.parked,
        "headgate_outside_samples": status.outside.handed if status.outside else 0,
        "headgate_outside_samples_working": status.outside.working if status.outside else 0,
        "headgate_worker_busy_seconds_total": status.workers.busy_s,
        "headgate_spooled_samples": status.spooled,
        "headgate_open_tasks": status.open_tasks,
    }
    lag: Series = {}
    for pair in status.pairs:
        lag[pair.environment,] = max(lag.get((pair.environment,), 0.0), pair.lag_s)
    queued: Series = dict.fromkeys(lag, 0.0)
    queued |= {(environment,): tasks for environment, tasks in status.queue.by_environment.items()}
    running: Series = {(model.model,): model.in_flight for model in status.models[:LABEL_CAP]}
    if others := sum(model.in_flight for model in status.models[LABEL_CAP:]):
        running[OTHER_MODELS,] = others
    return {
        **{name: {(): value} for name, value in plain.items()},
        "headgate_queue_environment_tasks": queued,
        "headgate_lag_seconds": lag,
        "headgate_tasks_in_flight": running,
        **_request_values(status.requests),
        **_budget_values(status.models),
    }
