"""The reference page of the job queue: its routes, settings, metrics and errors, as the code has them."""

from __future__ import annotations

import re

from reference_errors import errors_section

import headgate.jobqueue
from headgate.core import SystemClock
from headgate.jobqueue import Instant, Ledger, LedgerWriter
from headgate.jobqueue.server import ServerSettings
from headgate.jobqueue.server.app import ROUTES
from headgate.jobqueue.server.metrics import Metrics, queue_gauges
from headgate.jobqueue.server.settings import PREFIX
from headgate.jobqueue.stores import MemoryStore

_LEGACY_ROUTES = (
    ("GET /job?worker=", '`{"job": {id, payload, resource_type}}` or `{"job": null}`'),
    ("POST /job/{job_id}/heartbeat?worker=", "404 `Job not assigned to worker`"),
    ("POST /done/{job_id}?worker=", "400 `Job not assigned to worker`, also when done before"),
    ("POST /resource/{type}/acquire?worker=&job_id=", "`{index, resource}`; 404; 429"),
    ("POST /resource/{type}/heartbeat?worker=&job_id=&resource_idx=", "404 `Resource lease not found`"),
    ("POST /resource/{type}/release?worker=&job_id=&resource_idx=", "404 `… not found or mismatch`"),
    ("POST /heartbeat?worker=", "renews everything that the worker holds, and counts it"),
)


def jobqueue_page() -> str:
    """Return the page."""
    return "\n".join([*_head(), *_routes(), *_settings(), *_metrics(), *errors_section(headgate.jobqueue)]) + "\n"


def _head() -> list[str]:
    return [
        "# Job queue",
        "",
        "Routes, settings, metrics and errors of `headgate jobqueue serve`. [How it works](../design/jobqueue.md),",
        "how to [serve](../how-to/jobqueue-server.md) and [work](../how-to/jobqueue-workers.md).",
        "`/openapi.json` has every body with examples.",
    ]


def _routes() -> list[str]:
    lines = ["", "## Routes", "", "Every error is a problem document (RFC 9457) with `code` and `next_step`.", ""]
    lines += ["| route | scope of the token | |", "|---|---|---|"]
    for route in ROUTES:
        scope = f"`{route.scope}`" if route.scope else "none needed"
        lines.append(f"| `{route.method} {route.pattern}` | {scope} | {route.summary} |")
    lines += ["", "## Legacy protocol", "", 'Parameters are query parameters; errors are `{"detail": …}`.']
    lines += ["[Which workers speak it](../how-to/jobqueue-server.md#legacy-workers).", ""]
    lines += ["| route | scope of the token | |", "|---|---|---|"]
    return lines + [f"| `{route}` | `legacy` | {text} |" for route, text in _LEGACY_ROUTES]


def _settings() -> list[str]:
    lines = [
        "",
        "## Settings",
        "",
        "A flag of `headgate jobqueue serve` wins over the variable. Durations are in seconds.",
    ]
    for name, field in ServerSettings.model_fields.items():
        lines += ["", f"### `{name}`", "", str(field.description), ""]
        lines += [f"- Default: `{field.default}`", f"- Variable: `{PREFIX}{name.upper()}`"]
    return lines


def _metrics() -> list[str]:
    store = MemoryStore()
    writer = LedgerWriter(store, SystemClock(), "reference")
    ledger = Ledger(store.own("reference"), Instant(0.0, 0.0))
    text = Metrics(writer).text(queue_gauges(ledger), 0).decode()
    lines = ["", "## Metrics", "", "`GET /metrics`, in the text form of Prometheus."]
    for name, sentence in re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE):
        if not name.endswith("_created"):
            lines += ["", f"### `{name}`", "", sentence]
    return lines
