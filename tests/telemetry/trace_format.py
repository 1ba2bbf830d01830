"""A strict reader of the trace-event format: what a trace must be so that every viewer shows all of it."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "b": {"name", "cat", "pid", "tid", "ts", "id2", "args"},
    "e": {"name", "cat", "pid", "tid", "ts", "id2"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
    "M": {"name", "pid", "tid", "args"},
}
METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}
EPSILON_US = 0.002
"""Times are rounded to nanoseconds."""


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Return the events of a trace file; fails where a viewer would show less than the file says."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(data)
    assert document["displayTimeUnit"] in ("ms", "ns")
    found: list[dict[str, Any]] = document["traceEvents"]
    for event in found:
        _check_event(event)
    _check_names(found)
    _check_nesting(found)
    _check_spans(found)
    _check_flows(found)
    return found


def slices(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the slices whose name begins with `name`."""
    return [event for event in found if event["ph"] == "X" and event["name"].startswith(name)]


def name_of_process(found: list[dict[str, Any]], pid: int) -> str:
    """Return what a group of tracks is called."""
    return next(e["args"]["name"] for e in found if e["name"] == "process_name" and e["pid"] == pid)


def _check_event(event: dict[str, Any]) -> None:
    assert event["ph"] in REQUIRED, event
    assert set(event) == REQUIRED[event["ph"]] | {"ph"}, event
    assert isinstance(event["name"], str), event
    assert event["name"], event
    assert all(isinstance(event[number], int) for number in ("pid", "tid")), event
    for time in ("ts", "dur"):
        if time in event:
            assert isinstance(event[time], int | float), event
            assert math.isfinite(event[time]), event
            assert event[time] >= 0, event
    if event["ph"] == "C":
        assert event["args"], event
        assert all(isinstance(value, int | float) for value in event["args"].values()), event
    if event["ph"] == "i":
        assert event["s"] in ("g", "p", "t"), event
    if event["ph"] == "M":
        assert event["name"] in METADATA, event


def _check_names(found: list[dict[str, Any]]) -> None:
    processes = {e["pid"] for e in found if e["name"] == "process_name"}
    tracks = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    assert {e["pid"] for e in found} <= processes
    assert {(e["pid"], e["tid"]) for e in found if e["ph"] in "Xi"} <= tracks


def _check_nesting(found: list[dict[str, Any]]) -> None:
    by_track = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            by_track[event["pid"], event["tid"]].append(event)
    for events in by_track.values():
        stack: list[float] = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            end = event["ts"] + event["dur"]
            while stack and stack[-1] <= event["ts"] + EPSILON_US:
                stack.pop()
            assert not stack or end <= stack[-1] + EPSILON_US, f"{event} crosses what it begins in"
            stack.append(end)


def _check_spans(found: list[dict[str, Any]]) -> None:
    opened: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for event in found:
        if event["ph"] in "be":
            key = (event["pid"], event["cat"], event["name"], event["id2"]["local"])
            if event["ph"] == "b":
                opened[key].append(event["ts"])
            else:
                assert event["ts"] >= opened[key].pop(), event
    assert [key for key, left in opened.items() if left] == []


def _check_flows(found: list[dict[str, Any]]) -> None:
    flows: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in found:
        if event["ph"] in "sf":
            assert event["ph"] not in flows[event["id"]], event
            flows[event["id"]][event["ph"]] = event
    for flow in flows.values():
        assert set(flow) == {"s", "f"}, flow
        assert flow["s"]["ts"] <= flow["f"]["ts"], flow
        for end in flow.values():
            assert any(
                e["ts"] - EPSILON_US <= end["ts"] <= e["ts"] + e["dur"] + EPSILON_US
                for e in found
                if e["ph"] == "X" and (e["pid"], e["tid"]) == (end["pid"], end["tid"])
            ), f"{end} touches no slice"
