"""Reading what engines tell: JSON documents and lines of metrics, of which only a few numbers matter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from headgate.elastic.engines.replies import Reply
from headgate.elastic.errors import EngineError

_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)", re.ASCII)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.ASCII)


def document(reply: Reply) -> Mapping[str, Any]:
    """Return the JSON object of an answer that is one.

    Raises:
        EngineError: the call failed, or the answer is no JSON object.
    """
    if not reply.is_ok:
        raise reply.error(is_final=True)
    found = reply.read()
    if not isinstance(found, Mapping):
        raise EngineError(f"{reply.call} was answered by something that is not a JSON object", is_final=True)
    return found


def members(reply: Reply, name: str) -> list[Mapping[str, Any]]:
    """Return the objects in a list of a document, at least one.

    Raises:
        EngineError: there are none.
    """
    listed = document(reply).get(name)
    found = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, Sequence) else []
    if not found:
        raise EngineError(f"{reply.call} was answered without {name}: {reply.said()!r}", is_final=True)
    return found


def model_names(reply: Reply) -> tuple[str, ...]:
    """Return the names in an answer of `/v1/models`."""
    return tuple(str(model["id"]) for model in members(reply, "data") if "id" in model)


def total(documents: Iterable[Mapping[str, Any]], name: str) -> int | None:
    """Return the sum of a number over all documents; None where one does not tell it."""
    told = [each.get(name) for each in documents]
    numbers = [number for number in told if isinstance(number, int | float)]
    return int(sum(numbers)) if numbers and len(numbers) == len(told) else None


def at_most(limit: int | None, told: int | None) -> int | None:
    """Return the smaller of two numbers that may both be unknown."""
    known = [number for number in (limit, told) if number is not None]
    return min(known) if known else None


def metric_samples(text: str, names: Iterable[str]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of some metrics, labels and values, out of a page in Prometheus' text format."""
    wanted: dict[str, list[tuple[dict[str, str], float]]] = {name: [] for name in names}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or sample[1] not in wanted:
            continue
        try:
            wanted[sample[1]].append((dict(_LABEL.findall(sample[2] or "")), float(sample[3])))
        except ValueError:
            continue
    return wanted


def with_field(body: bytes, name: str, value: str) -> bytes:
    """Return a JSON object with a field set; what is none stays as it is, for the engine to refuse."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    return orjson.dumps({**found, name: value}) if isinstance(found, dict) else body
