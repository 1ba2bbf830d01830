"""Every metric of elastic pools by name: the single source of the page and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.telemetry import Metric

_POOL: Final = ("pool",)
_WORKER: Final = ("pool", "worker")

_GAUGES: Final = (
    Metric("headgate_elastic_workers", "gauge", "Workers by state.", ("pool", "state")),
    Metric("headgate_elastic_desired_workers", "gauge", "Workers that there should be, as last decided.", _POOL),
    Metric(
        "headgate_elastic_demand_workers",
        "gauge",
        "Work that runs and waits, in workers: 1.5 fills one and a half.",
        _POOL,
    ),
    Metric("headgate_elastic_running", "gauge", "Requests that are with workers.", _POOL),
    Metric("headgate_elastic_waiting", "gauge", "Requests that wait in front of the workers.", _POOL),
    Metric("headgate_elastic_oldest_wait_seconds", "gauge", "How long the first of them has been waiting.", _POOL),
    Metric("headgate_elastic_start_estimate_seconds", "gauge", "How long a worker takes to start, as learnt.", _POOL),
    Metric("headgate_elastic_service_estimate_seconds", "gauge", "How long a request takes, as learnt.", _POOL),
    Metric("headgate_elastic_worker_requests", "gauge", "Requests that the pool has given a worker.", _WORKER),
    Metric(
        "headgate_elastic_worker_engine_requests",
        "gauge",
        "Requests that a worker's engine counts, running and waiting; more than the pool's are others'.",
        _WORKER,
    ),
    Metric("headgate_elastic_worker_slots", "gauge", "Requests that a worker is given at once.", _WORKER),
    Metric("headgate_elastic_worker_share", "gauge", "How much of a worker is in use; 1 is full.", _WORKER),
)
_COUNTERS: Final = (
    Metric("headgate_elastic_arrivals_total", "counter", "Requests that were accepted.", _POOL),
    Metric(
        "headgate_elastic_requests_total",
        "counter",
        "Requests that ended; outcome is served, lost, withdrawn (by the client) or refused (never accepted).",
        ("pool", "outcome"),
    ),
    Metric(
        "headgate_elastic_hand_overs_total",
        "counter",
        "Times that a request was taken from one worker for another, unseen by its client.",
        _POOL,
    ),
    Metric("headgate_elastic_worker_failures_total", "counter", "Times that a worker failed.", _WORKER),
    Metric(
        "headgate_elastic_scale_decisions_total",
        "counter",
        "Decisions for another number of workers; direction is up or down.",
        ("pool", "direction"),
    ),
    Metric(
        "headgate_elastic_awake_seconds_total",
        "counter",
        "Worker-seconds awake, starting and draining included: what the pool has cost.",
        _POOL,
    ),
)
_HISTOGRAMS: Final = (
    Metric(
        "headgate_elastic_wait_seconds",
        "histogram",
        "Time of a request until it was given to the worker that answered it.",
        _POOL,
    ),
    Metric(
        "headgate_elastic_first_byte_seconds",
        "histogram",
        "Time of a request until its answer could begin to be sent; for what is no stream, until it was whole.",
        _POOL,
    ),
    Metric("headgate_elastic_answer_seconds", "histogram", "Time of a request until its answer was whole.", _POOL),
    Metric("headgate_elastic_start_seconds", "histogram", "Time of a worker to start, its lease in hand.", _POOL),
    Metric("headgate_elastic_drain_seconds", "histogram", "Time of a worker from the drain until it slept.", _POOL),
)
ELASTIC_METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in (*_GAUGES, *_COUNTERS, *_HISTOGRAMS)}
"""Name -> what is known of it."""
