"""The reference page of placement: pools, requests, rules, metrics and errors, as the code has them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

import headgate.placement
from headgate.core.errors import HeadgateError
from headgate.placement.checks import PoolSpec, RequestSpec
from headgate.placement.cluster.tuning import TUNED
from headgate.placement.metric_names import PLACEMENT_METRICS
from headgate.placement.pool import Pool
from headgate.placement.request import PlacementRequest
from headgate.placement.rules import PreemptionRules


def placement_page() -> str:
    """Return the page."""
    return "\n".join([*_head(), *_forms(), *_rules(), *_cluster(), *_metrics(), *_errors()]) + "\n"


def placement_errors() -> list[type[HeadgateError]]:
    """Return every class of error that the room of placement defines, by code."""
    for module in pkgutil.walk_packages(headgate.placement.__path__, "headgate.placement."):
        importlib.import_module(module.name)
    found = {cls for cls in _descendants(HeadgateError) if cls.__module__.startswith("headgate.placement")}
    return sorted(found, key=lambda cls: (cls.code, cls.__module__, cls.__name__))


def _descendants(cls: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    for inner in cls.__subclasses__():
        yield inner
        yield from _descendants(inner)


def _head() -> list[str]:
    return [
        "# Placement",
        "",
        "What pools, requests and rules of preemption are made of, what Ray exports about them, and what is refused.",
        "[How it works](../design/placement.md), [how to use it](../how-to/placement.md),",
        "[on a cluster](../how-to/placement-cluster.md). Durations are in seconds.",
        "",
        "Amounts are written `{cpu: 2, gpu: 1, memory: 8 GiB, custom: {licence: 1}}`: three decimals at most, GPUs",
        "above 1 whole, memory in bytes or as text with its unit.",
    ]


def _forms() -> list[str]:
    pools = _fields_of_model(PoolSpec, _meanings(Pool))
    requests = _fields_of_model(RequestSpec, _meanings(PlacementRequest) | {"resources": "one bundle."})
    return ["", "## Pools", "", *pools, "", "## Requests", "", *requests]


def _rules() -> list[str]:
    meanings = _meanings(PreemptionRules)
    lines = ["", "## Rules of preemption", "", "An unknown name is refused with the nearest known one.", *_TABLE]
    for field in dataclasses.fields(PreemptionRules):
        if field.init:
            default = field.default if field.default is not dataclasses.MISSING else {}
            lines.append(f"| `{field.name}` | {_default(default)} | {_cell(meanings[field.name])} |")
    aliases = "`aggressiveness` sets the two thresholds that are not named: `high` 0.1 and 0.5, `medium` 0.5 and 1.0,"
    return [*lines, "", aliases, "`low` 1.0 and 3.0 (label, same pool); `env:NAME` takes the word of a variable."]


def _cluster() -> list[str]:
    lines = [
        "",
        "## Settings of Ray",
        "",
        "A cluster that Headgate starts has these; for another one, set each as `RAY_<name>` where its head and its",
        "nodes start.",
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
        "By `ray.util.metrics`, on the page of Ray's exporter on the ledger's node; below are the names on that page.",
        "Ray adds tags of its own, `WorkerId` among them: ask for `sum by (pool)`. The names with `schedulemesh_` are",
        "those of an earlier scheduler, with its tags; what it showed as gauges of the last value are histograms.",
    ]
    for metric in PLACEMENT_METRICS.values():
        tags = f" Tags: {', '.join(f'`{tag}`' for tag in metric.tags)}." if metric.tags else ""
        lines += ["", f"### `{metric.exported}`", "", f"{metric.kind.capitalize()}. {metric.help}{tags}"]
    return lines


def _errors() -> list[str]:
    lines = ["", "## Errors"]
    described: set[str] = set()
    for cls in placement_errors():
        if cls.code not in described:
            described.add(cls.code)
            sentence = re.sub(r"\s+", " ", (inspect.getdoc(cls) or "").split("\n\n")[0]).strip()
            lines += ["", f"### `{cls.code}`", "", f"{sentence} Exit status {cls.exit_code}, HTTP {cls.http_status}."]
            lines += ["", f"*Next:* {cls.next_step}"]
    return lines


_TABLE = ("", "| name | default | |", "|---|---|---|")


def _fields_of_model(model: type[BaseModel], meanings: Mapping[str, str]) -> list[str]:
    lines = [_sentence(model), *_TABLE]
    for name, field in model.model_fields.items():
        factory = field.default_factory is not None
        default = "needed" if field.is_required() else ("none" if factory else _default(field.default))
        lines.append(f"| `{name}` | {default} | {_cell(meanings.get(name, ''))} |")
    return lines


def _sentence(thing: object) -> str:
    return re.sub(r"\s+", " ", inspect.getdoc(thing) or "").strip()


def _meanings(cls: type[Any]) -> dict[str, str]:
    """Return what the docstring of a class says about each of its attributes."""
    text = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            name, found[start[1]] = start[1], start[2]
        elif line.startswith(" " * 8) and name:
            found[name] += f" {line.strip()}"
        else:
            break
    return found


def _default(value: object) -> str:
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _cell(text: str) -> str:
    return text[:1].upper() + text[1:].replace("|", "\\|")
