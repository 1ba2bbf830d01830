"""Every metric by name: the single source of the registry, the documentation and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.core import Metric, metrics_of

_OF_EVENTS: Final = metrics_of(
    "histogram",
    {
        "headgate_samples_total{environment,outcome}": "Samples accepted; outcome is success, failure or the error "
        "kind.",
        "headgate_model_samples_total{model,outcome}": "Samples accepted by model; models above the label cap share "
        "the label (other).",
        "headgate_scored_samples_total{environment}": "Samples that got a score.",
        "headgate_score_points_total{environment}": "Sum of the scores; divided by headgate_scored_samples_total it "
        "is the mean score.",
        "headgate_episode_latency_seconds{environment}": "Duration of an episode.",
        "headgate_queue_wait_seconds{environment}": "Time of a task from ready to started.",
        "headgate_request_wait_seconds{environment}": "Time within an episode spent waiting for admission of requests "
        "and for back-off.",
        "headgate_requests_total{outcome}": "Attempts of chat requests; outcome as above.",
        "headgate_request_latency_seconds{outcome}": "Duration of one attempt of a chat request.",
        "headgate_request_delays_total{outcome}": "Back-offs before another attempt.",
        "headgate_rate_limits_total": "Attempts that a provider refused for their rate (429).",
        "headgate_request_denials_total{reason}": "Requests that were refused admission; reason as in the event "
        "request_denied.",
        "headgate_request_limit_changes_total{direction}": "Times that an adaptive limit moved; direction is up or "
        "down.",
        "headgate_request_cap_changes_total": "Times that a static cap on requests changed.",
        "headgate_breaker_opens_total": "Times that the circuit breaker of a model opened.",
        "headgate_retries_denied_total": "Retries that the retry budget of an endpoint did not allow.",
        "headgate_tasks_deferred_total": "Tasks that went back into the queue to wait for a provider.",
        "headgate_tokens_total{kind}": "Tokens of answered requests; kind is prompt or completion.",
        "headgate_tasks_enqueued_total": "Tasks that entered the ready queue.",
        "headgate_tasks_started_total{environment}": "Tasks that got their worker.",
        "headgate_tasks_returned_total{environment}": "Tasks that ended without a sample.",
        "headgate_samples_refused_total": "Samples of tasks no longer held; not counted.",
        "headgate_dues_forgiven_total": "Dues dropped as older than the catch-up horizon.",
        "headgate_model_pauses_total": "Pauses of a model after consecutive service errors.",
        "headgate_queue_warnings_total": "Times that the ready queue passed its warning threshold.",
        "headgate_queue_pauses_total": "Times that the ready queue reached its pause threshold.",
        "headgate_batches_stored_total": "Batches that became visible in the store.",
        "headgate_rows_stored_total": "Samples that became visible in the store.",
        "headgate_batch_store_seconds": "Time to store one batch.",
        "headgate_store_failures_total": "Batches that could not be stored; each is tried again.",
        "headgate_rows_quarantined_total": "Rows that broke the schema.",
        "headgate_roster_refresh_failures_total": "Rosters that could not be read.",
        "headgate_task_provider_failures_total": "Times that a task provider gave no tasks.",
        "headgate_journal_blocks_total": "Times that the journal could not be written.",
        "headgate_slot_denials_total{limit}": "Times that a global limit had no slots left.",
        "headgate_slots_lost_total{limit,reason}": "Leased slots that ended without being given back.",
        "headgate_slot_disagreements_total{limit}": "Times that a global limit counted other slots than are held.",
    },
)
_OF_STATUS: Final = metrics_of(
    "gauge",
    {
        "headgate_campaign_start_time_seconds": "When the campaign started, seconds since the epoch.",
        "headgate_models": "Models sampled or paused.",
        "headgate_models_paused": "Models paused now.",
        "headgate_queue_tasks": "Tasks in the ready queue.",
        "headgate_queue_environment_tasks{environment}": "Tasks in the ready queue by environment.",
        "headgate_queue_buffered_tasks": "Tasks in samplers' buffers, not yet in the queue.",
        "headgate_tasks_in_flight{model}": "Tasks of a model that run now, which `group_cap` and `max_parallel` "
        "bound. Models above the label cap share the label (other), as a sum.",
        "headgate_queue_paused": "1 while the ready queue holds samplers back, else 0.",
        "headgate_workers": "Workers: the limit on concurrent episodes.",
        "headgate_workers_busy": "Workers busy now.",
        "headgate_workers_parked": "Episodes that wait for a provider and lent their worker away.",
        "headgate_outside_samples": "Samples with outside workers: their jobs wait for one, or have one.",
        "headgate_outside_samples_working": "Of them, those that a worker has.",
        "headgate_worker_busy_seconds_total": "Worker seconds spent on episodes since the start.",
        "headgate_spooled_samples": "Samples durable in the journal and not yet visible in the store.",
        "headgate_open_tasks": "Tasks generated and not yet ended.",
        "headgate_lag_seconds{environment}": "Age of the oldest task that is overdue; 0 when none.",
        "headgate_request_limit{provider,model,domain}": "Adaptive limit of requests in flight; endpoints above the "
        "label cap share the label (other), as a sum.",
        "headgate_request_cap{provider,model,domain}": "Static cap of requests in flight, as above.",
        "headgate_requests_in_flight{provider,model,domain}": "Requests in flight now, as above.",
        "headgate_request_waiters{provider,model,domain}": "Requests that wait for admission, as above.",
        "headgate_request_cooldown_seconds{provider,model,domain}": "How much longer an endpoint is left alone; the "
        "longest under (other).",
        "headgate_request_breaker_open{provider,model,domain}": "1 while the circuit breaker of an endpoint is not "
        "closed, else 0; a count under (other).",
        "headgate_rate_limit{scope,unit}": "Limit per minute of a model, a key or an organisation, as far as it is "
        "this process's; unit is requests_per_minute, input_tokens_per_minute, output_tokens_per_minute or "
        "tokens_per_minute. Scopes above the label cap share the label (other), as a sum.",
        "headgate_rate_left{scope,unit}": "What may be taken of it now, as above.",
        "headgate_rate_share{scope,unit}": "The part of the whole limit that is this process's, 1 where it has it "
        "alone; the smallest under (other).",
        "headgate_budget_used{model,budget}": "What a model spent of a budget in the last 24 h; budget is "
        "daily_tokens, daily_requests or daily_cost. Models above the label cap share the label (other), as a sum.",
        "headgate_budget_held{model,budget}": "What its episodes in progress may still spend, as above.",
        "headgate_budget_limit{model,budget}": "What it may spend in any 24 h, as above.",
    },
)
_OF_LOSSES: Final = metrics_of(
    "gauge",
    {
        "headgate_events_dropped_total{sink}": "Events that a sink could not take; none is a sample.",
        "headgate_sink_failures_total{sink}": "Times that a sink of events raised an error.",
    },
)

SPECS: Final[Mapping[str, Metric]] = _OF_EVENTS | _OF_STATUS | _OF_LOSSES
"""Name -> its specification."""

EVENT_NAMES: Final = tuple(_OF_EVENTS)
"""The metrics that count events."""

STATUS_NAMES: Final = tuple(_OF_STATUS)
"""The metrics that are read from the campaign's status at each scrape."""

LOSS_NAMES: Final = tuple(_OF_LOSSES)
"""The metrics of dropped events and failures of sinks."""

METRICS: Final[Mapping[str, str]] = {metric.name: metric.help for metric in SPECS.values()}
"""Name -> help text."""
