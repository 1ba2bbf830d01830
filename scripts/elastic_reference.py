"""The reference page of elastic pools: settings, the file of a pool, states, what is shown, metrics and errors."""

from __future__ import annotations

from typing import Final

from reference_errors import errors_section
from reference_tables import cell, meanings_of, table_of_attributes, table_of_model

import headgate.elastic
from headgate.elastic import ElasticConfig, EngineLoad, WorkerState
from headgate.elastic.demand import Demand
from headgate.elastic.engines import EngineSpec, NamedEngine
from headgate.elastic.fleet import _EDGES as EDGES
from headgate.elastic.gateway import AdmissionView, EngineEntry, GatewaySettings, GatewayStatus, PoolSection
from headgate.elastic.service import BOUNDS_S, ELASTIC_METRICS, Counts, PoolStatus, Times, WorkerView
from headgate.orchestration.elastic.forms import ActorEngines, ServedEngines, WorkerPlacement

STATES: Final = {
    WorkerState.ACTIVE: "Takes requests.",
    WorkerState.DRAINING: "Takes no new ones and ends what it has; may turn back until it is put to sleep.",
    WorkerState.INACTIVE: "Sleeps: its cache is flushed, its memory free, its lease given back.",
    WorkerState.STARTING: "Waits for its lease, takes its memory, proves that it answers.",
    WorkerState.FAILED: "Does not answer, or would not start or sleep; what it had went to others. Tried again later.",
}

_WORKER: Final = "POST /elastic/v1/workers/{worker}"
ROUTES: Final = (
    ("POST /v1/chat/completions", "ask", "A chat, streamed with `stream: true`; answered as the engine answered."),
    ("POST /v1/completions", "ask", "A completion, likewise."),
    ("GET /v1/models", "ask", "The models that are served."),
    ("GET /v1/models/{model}", "ask", "One of them."),
    ("POST /v1/files", "ask", "Upload a JSONL file of chats, as a form with the purpose `batch`; at most 64 MiB."),
    ("GET /v1/files", "ask", "The files of this token: 256 MiB at most, in memory, for a week at most."),
    ("GET /v1/files/{id}", "ask", "One of them."),
    ("GET /v1/files/{id}/content", "ask", "What is in it."),
    ("DELETE /v1/files/{id}", "ask", "Delete it."),
    ("POST /v1/batches", "ask", "Have the chats of a file answered when there is room, within 24 h."),
    ("GET /v1/batches", "ask", "The batches of this token."),
    ("GET /v1/batches/{id}", "ask", "One of them."),
    ("POST /v1/batches/{id}/cancel", "ask", "Ask no more of its chats; what is answered stays."),
    ("GET /elastic/v1/status", "ask", "Where the pool stands. `?wait=30` waits so long for a change."),
    (
        "POST /elastic/v1/scale",
        "steer",
        '`{"workers": 3}` whatever the load; `null` gives the number back to the policy.',
    ),
    (f"{_WORKER}/drain", "steer", "Put a worker to sleep and leave it asleep."),
    (f"{_WORKER}/wake", "steer", "Wake a worker and leave it awake."),
    (f"{_WORKER}/unpin", "steer", "Have a worker follow the load again."),
    ("POST /elastic/v1/wake-all", "steer", '`{"for_s": 600}`: all workers awake for so long, or until `resume`.'),
    ("POST /elastic/v1/resume", "steer", "Follow the load again: ends `wake-all` and `scale`."),
    ("GET /health", "nobody", "200, or 503 while the gateway stops."),
    ("GET /metrics", "ask", "[Metrics](#metrics)."),
    ("GET /", "nobody", "How to watch it: `headgate console`."),
)
"""Route, whose token it needs where there are tokens, and what it does."""


def elastic_page() -> str:
    """Return the page."""
    errors = errors_section(headgate.elastic)
    return (
        "\n".join([*_head(), *_settings(), *_file(), *_routes(), *_states(), *_status(), *_metrics(), *errors]) + "\n"
    )


def _head() -> list[str]:
    return [
        "# Elastic pools",
        "",
        "Every setting, field, metric and error of an elastic pool and of its gateway.",
        "[How it works](../design/elastic.md), [how to use it](../how-to/elastic.md#run-an-elastic-pool),",
        "[its engines](elastic-engines.md). Durations are in seconds.",
    ]


def _settings() -> list[str]:
    lines = [
        "",
        "## Settings",
        "",
        "The section `elastic_config` of the file of a pool, or of a training's configuration; in Python",
        "`ElasticConfig`. An unknown name is refused with the nearest known one.",
    ]
    return [*lines, *table_of_model(ElasticConfig, meanings_of(ElasticConfig))]


def _file() -> list[str]:
    engine = meanings_of(NamedEngine) | meanings_of(EngineSpec)
    engine |= {f"{key}_env": f"variable with the key {text}" for key, text in engine.items() if key.endswith("_key")}
    return [
        "",
        "## The file of a pool",
        "",
        "YAML. A key that is given twice is refused, and so is an unknown one.",
        "",
        "### `pool`",
        *table_of_model(PoolSection, meanings_of(PoolSection)),
        "",
        "### `pool.engines`",
        "",
        "An address alone, or a mapping.",
        *table_of_model(EngineEntry, engine, leaving_out=("actors",)),
        "",
        "### `pool.engines` in places on Ray",
        *table_of_model(ActorEngines, meanings_of(ActorEngines)),
        "",
        "### `pool.engines` from weights",
        *table_of_model(ServedEngines, meanings_of(ServedEngines)),
        "",
        "### `placement`",
        *table_of_model(WorkerPlacement, meanings_of(WorkerPlacement)),
        "",
        "### `gateway`",
        *table_of_model(GatewaySettings, meanings_of(GatewaySettings)),
    ]


def _routes() -> list[str]:
    lines = [
        "",
        "## Routes",
        "",
        "Of the gateway. Below `/v1` errors have OpenAI's form, elsewhere they are problem documents (RFC 9457) with",
        "`code` and `next_step`. Every change is answered with the status after it; a worker is named by its id or a",
        "part of it that no other has. Without tokens everybody on this machine may ask and steer; without operators,",
        "whoever may ask may steer.",
        "",
        "| route | token to | |",
        "|---|---|---|",
    ]
    return lines + [f"| `{route}` | {token} | {cell(text)} |" for route, token, text in ROUTES]


def _states() -> list[str]:
    rows = (
        f"| `{state}` | {STATES[state]} | {', '.join(f'`{after}`' for after in sorted(EDGES[state]))} |"
        for state in WorkerState
    )
    return ["", "## States of a worker", "", "| state | | goes to |", "|---|---|---|", *rows]


def _status() -> list[str]:
    lines = [
        "",
        "## What a pool shows",
        "",
        "`GET /elastic/v1/status` and `headgate elastic status --json`.",
        "",
        "### The gateway",
        *table_of_attributes(GatewayStatus),
    ]
    for heading, cls in (
        ("`admission`", AdmissionView),
        ("`pool`", PoolStatus),
        ("`pool.workers`", WorkerView),
        ("`load` of a worker", EngineLoad),
        ("`pool.demand`", Demand),
        ("`pool.counts`", Counts),
        ("`pool.times`", Times),
    ):
        lines += ["", f"### {heading}", *table_of_attributes(cls)]
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS_S)
    return [*lines, "", f"Each is a histogram: `counts` between the bounds {bounds} and above, and `total_s`."]


def _metrics() -> list[str]:
    lines = ["", "## Metrics", "", "`GET /metrics` of the gateway, in the text form of Prometheus."]
    for metric in ELASTIC_METRICS.values():
        labels = f" Labels: {', '.join(f'`{label}`' for label in metric.labels)}." if metric.labels else ""
        lines += ["", f"### `{metric.name}`", "", f"{metric.kind.capitalize()}. {metric.help}{labels}"]
    return lines
