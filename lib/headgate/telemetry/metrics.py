"""Every metric by name: the single source of the registry, the documentation and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.core import Metric

ENDPOINT_LABELS: Final = ("provider", "model", "domain")
"""What tells one request key from another."""

BUDGET_LABELS: Final = ("model", "budget")
"""What tells one budget from another."""

_EVENT_METRICS: Final = (
    Metric(
        "headgate_samples_total",
        "counter",
        "Samples accepted; outcome is success, failure or the error kind.",
        ("environment", "outcome"),
    ),
    Metric(
        "headgate_model_samples_total",
        "counter",
        "Samples accepted by model; models above the label cap share the label (other).",
        ("model", "outcome"),
    ),
    Metric("headgate_scored_samples_total", "counter", "Samples that got a score.", ("environment",)),
    Metric(
        "headgate_score_points_total",
        "counter",
        "Sum of the scores; divided by headgate_scored_samples_total it is the mean score.",
        ("environment",),
    ),
    Metric("headgate_episode_latency_seconds", "histogram", "Duration of an episode.", ("environment",)),
    Metric("headgate_queue_wait_seconds", "histogram", "Time of a task from ready to started.", ("environment",)),
    Metric(
        "headgate_request_wait_seconds",
        "histogram",
        "Time within an episode spent waiting for admission of requests and for back-off.",
        ("environment",),
    ),
    Metric("headgate_requests_total", "counter", "Attempts of chat requests; outcome as above.", ("outcome",)),
    Metric("headgate_request_latency_seconds", "histogram", "Duration of one attempt of a chat request.", ("outcome",)),
    Metric("headgate_request_delays_total", "counter", "Back-offs before another attempt.", ("outcome",)),
    Metric("headgate_rate_limits_total", "counter", "Attempts that a provider refused for their rate (429)."),
    Metric(
        "headgate_request_denials_total",
        "counter",
        "Requests that were refused admission; reason as in the event request_denied.",
        ("reason",),
    ),
    Metric(
        "headgate_request_limit_changes_total",
        "counter",
        "Times that an adaptive limit moved; direction is up or down.",
        ("direction",),
    ),
    Metric("headgate_request_cap_changes_total", "counter", "Times that a static cap on requests changed."),
    Metric("headgate_breaker_opens_total", "counter", "Times that the circuit breaker of a model opened."),
    Metric("headgate_retries_denied_total", "counter", "Retries that the retry budget of an endpoint did not allow."),
    Metric("headgate_tasks_deferred_total", "counter", "Tasks that went back into the queue to wait for a provider."),
    Metric("headgate_tokens_total", "counter", "Tokens of answered requests; kind is prompt or completion.", ("kind",)),
    Metric("headgate_tasks_enqueued_total", "counter", "Tasks that entered the ready queue."),
    Metric("headgate_tasks_started_total", "counter", "Tasks that got their worker.", ("environment",)),
    Metric("headgate_tasks_returned_total", "counter", "Tasks that ended without a sample.", ("environment",)),
    Metric("headgate_samples_refused_total", "counter", "Samples of tasks no longer held; not counted."),
    Metric("headgate_dues_forgiven_total", "counter", "Dues dropped as older than the catch-up horizon."),
    Metric("headgate_model_pauses_total", "counter", "Pauses of a model after consecutive service errors."),
    Metric("headgate_queue_warnings_total", "counter", "Times that the ready queue passed its warning threshold."),
    Metric("headgate_queue_pauses_total", "counter", "Times that the ready queue reached its pause threshold."),
    Metric("headgate_batches_stored_total", "counter", "Batches that became visible in the store."),
    Metric("headgate_rows_stored_total", "counter", "Samples that became visible in the store."),
    Metric("headgate_batch_store_seconds", "histogram", "Time to store one batch."),
    Metric("headgate_store_failures_total", "counter", "Batches that could not be stored; each is tried again."),
    Metric("headgate_rows_quarantined_total", "counter", "Rows that broke the schema."),
    Metric("headgate_roster_refresh_failures_total", "counter", "Rosters that could not be read."),
    Metric("headgate_task_provider_failures_total", "counter", "Times that a task provider gave no tasks."),
    Metric("headgate_journal_blocks_total", "counter", "Times that the journal could not be written."),
    Metric("headgate_slot_denials_total", "counter", "Times that a global limit had no slots left.", ("limit",)),
    Metric(
        "headgate_slots_lost_total", "counter", "Leased slots that ended without being given back.", ("limit", "reason")
    ),
    Metric(
        "headgate_slot_disagreements_total",
        "counter",
        "Times that a global limit counted other slots than are held.",
        ("limit",),
    ),
)
_STATUS_METRICS: Final = (
    Metric("headgate_campaign_start_time_seconds", "gauge", "When the campaign started, seconds since the epoch."),
    Metric("headgate_models", "gauge", "Models sampled or paused."),
    Metric("headgate_models_paused", "gauge", "Models paused now."),
    Metric("headgate_queue_tasks", "gauge", "Tasks in the ready queue."),
    Metric("headgate_queue_environment_tasks", "gauge", "Tasks in the ready queue by environment.", ("environment",)),
    Metric("headgate_queue_buffered_tasks", "gauge", "Tasks in samplers' buffers, not yet in the queue."),
    Metric(
        "headgate_tasks_in_flight",
        "gauge",
        "Tasks of a model that run now, which `group_cap` and `max_parallel` bound. Models above the label cap share "
        "the label (other), as a sum.",
        ("model",),
    ),
    Metric("headgate_queue_paused", "gauge", "1 while the ready queue holds samplers back, else 0."),
    Metric("headgate_workers", "gauge", "Workers: the limit on concurrent episodes."),
    Metric("headgate_workers_busy", "gauge", "Workers busy now."),
    Metric("headgate_workers_parked", "gauge", "Episodes that wait for a provider and lent their worker away."),
    Metric("headgate_worker_busy_seconds_total", "counter", "Worker seconds spent on episodes since the start."),
    Metric("headgate_spooled_samples", "gauge", "Samples durable in the journal and not yet visible in the store."),
    Metric("headgate_open_tasks", "gauge", "Tasks generated and not yet ended."),
    Metric("headgate_lag_seconds", "gauge", "Age of the oldest task that is overdue; 0 when none.", ("environment",)),
    Metric(
        "headgate_request_limit",
        "gauge",
        "Adaptive limit of requests in flight; endpoints above the label cap share the label (other), as a sum.",
        ENDPOINT_LABELS,
    ),
    Metric("headgate_request_cap", "gauge", "Static cap of requests in flight, as above.", ENDPOINT_LABELS),
    Metric("headgate_requests_in_flight", "gauge", "Requests in flight now, as above.", ENDPOINT_LABELS),
    Metric("headgate_request_waiters", "gauge", "Requests that wait for admission, as above.", ENDPOINT_LABELS),
    Metric(
        "headgate_request_cooldown_seconds",
        "gauge",
        "How much longer an endpoint is left alone; the longest under (other).",
        ENDPOINT_LABELS,
    ),
    Metric(
        "headgate_request_breaker_open",
        "gauge",
        "1 while the circuit breaker of an endpoint is not closed, else 0; a count under (other).",
        ENDPOINT_LABELS,
    ),
    Metric(
        "headgate_budget_used",
        "gauge",
        "What a model spent of a budget in the last 24 h; budget is daily_tokens, daily_requests or daily_cost. Models "
        "above the label cap share the label (other), as a sum.",
        BUDGET_LABELS,
    ),
    Metric("headgate_budget_held", "gauge", "What its episodes in progress may still spend, as above.", BUDGET_LABELS),
    Metric("headgate_budget_limit", "gauge", "What it may spend in any 24 h, as above.", BUDGET_LABELS),
)
_LOSS_METRICS: Final = (
    Metric(
        "headgate_events_dropped_total", "counter", "Events that a sink could not take; none is a sample.", ("sink",)
    ),
    Metric("headgate_sink_failures_total", "counter", "Times that a sink of events raised an error.", ("sink",)),
)
SPECS: Final[Mapping[str, Metric]] = {
    metric.name: metric for metric in (*_EVENT_METRICS, *_STATUS_METRICS, *_LOSS_METRICS)
}
"""Name -> what is known of it."""

STATUS_NAMES: Final = tuple(metric.name for metric in _STATUS_METRICS)
"""The metrics that are read from the campaign's status at each scrape."""

EVENT_NAMES: Final = tuple(metric.name for metric in _EVENT_METRICS)
"""The metrics that count events."""

LOSS_NAMES: Final = tuple(metric.name for metric in _LOSS_METRICS)
"""The metrics of events that sinks dropped, and of their failures."""

METRICS: Final[Mapping[str, str]] = {metric.name: metric.help for metric in SPECS.values()}
"""Name -> help text."""
