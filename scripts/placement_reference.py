"""The reference page of placement: pools, requests, rules, metrics and errors, as the code has them."""

from __future__ import annotations

import dataclasses

from reference_errors import errors_section
from reference_tables import HEAD, cell, default, fields_of_model, meanings_of

import headgate.placement
from headgate.placement.checks import PoolSpec, RequestSpec
from headgate.placement.cluster.tuning import TUNED
from headgate.placement.metrics import PLACEMENT_METRICS, exported_name
from headgate.placement.pool import Pool
from headgate.placement.request import PlacementRequest
from headgate.placement.rules import PreemptionRules


def placement_page() -> str:
    """Return the page."""
    errors = errors_section(headgate.placement)
    return "\n".join([*_head(), *_forms(), *_rules(), *_cluster(), *_metrics(), *errors]) + "\n"


def _head() -> list[str]:
    return [
        "# Placement",
        "",
        "Fields of pools, requests and preemption rules, the metrics that Ray exports, and the errors.",
        "[How it works](../design/placement.md), [how to use it](../how-to/placement.md#place-work-by-priority),",
        "[on a cluster](../how-to/placement.md#use-a-ray-cluster). Durations are in seconds.",
        "",
        "Amounts are written `{cpu: 2, gpu: 1, memory: 8 GiB, custom: {licence: 1}}`: three decimals at most, GPUs",
        "above 1 whole, memory in bytes or as text with its unit.",
    ]


def _forms() -> list[str]:
    pools = fields_of_model(PoolSpec, meanings_of(Pool))
    requests = fields_of_model(RequestSpec, meanings_of(PlacementRequest) | {"resources": "one bundle."})
    return ["", "## Pools", "", *pools, "", "## Requests", "", *requests]


def _rules() -> list[str]:
    meanings = meanings_of(PreemptionRules)
    lines = ["", "## Preemption rules", "", "An unknown name is refused; the message suggests the nearest.", *HEAD]
    for field in dataclasses.fields(PreemptionRules):
        if field.init:
            value = field.default if field.default is not dataclasses.MISSING else {}
            lines.append(f"| `{field.name}` | {default(value)} | {cell(meanings[field.name])} |")
    aliases = "`aggressiveness` sets the two thresholds that are not named: `high` 0.1 and 0.5, `medium` 0.5 and 1.0,"
    return [*lines, "", aliases, "`low` 1.0 and 3.0 (label, same pool); `env:NAME` takes the word of a variable."]


def _cluster() -> list[str]:
    lines = [
        "",
        "## Settings of Ray",
        "",
        "Headgate sets these on a cluster that it starts; on another one, set each as `RAY_<name>` where its head and",
        "its nodes start.",
        "",
        "| setting | value |",
        "|---|---|",
    ]
    return lines + [f"| `{name}` | `{str(value).lower()}` |" for name, value in TUNED.items()]


def _metrics() -> list[str]:
    lines = [
        "",
        "## Metrics",
        "",
        "Exported through `ray.util.metrics`, on the metrics page of the ledger's node; these are the names there.",
        "Ray adds tags such as `WorkerId`, so query `sum by (pool)`. Names with `schedulemesh_` keep",
        "[ScheduleMesh's dashboards](schedulemesh.md) working; latencies are histograms.",
    ]
    for metric in PLACEMENT_METRICS.values():
        tags = f" Tags: {', '.join(f'`{tag}`' for tag in metric.labels)}." if metric.labels else ""
        lines += ["", f"### `{exported_name(metric)}`", "", f"{metric.kind.capitalize()}. {metric.help}{tags}"]
    return lines
