"""Who held what: GPUs by kind over time, and the GPUs of each node one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.placement.amounts import GPU, MILLI, Amounts
from headgate.placement.replay.cluster import Cluster
from headgate.placement.replay.job import Trace
from headgate.placement.replay.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Block:
    """One job on some GPUs of one node, from `began_s` to `ended_s`; `low` and `high` are places on the node."""

    job: int
    node: int
    low: float
    high: float
    began_s: float
    ended_s: float
    is_last: bool


def drawn_resource(cluster: Cluster) -> str:
    """Return the resource that figures show: GPUs where there are any."""
    return GPU if cluster.total.get(GPU) else cluster.total.names()[0]


def held_by_kind(trace: Trace, cluster: Cluster, outcome: Outcome, edges_s: Sequence[float]) -> dict[str, list[float]]:
    """Return for each kind of job the mean number of GPUs that it held between neighbouring edges."""
    name = drawn_resource(cluster)
    kinds = sorted({job.kind for job in trace.jobs})
    held = {kind: [0.0] * (len(edges_s) - 1) for kind in kinds}
    start, width = edges_s[0], edges_s[1] - edges_s[0]
    for attempt in outcome.attempts:
        job = trace.jobs[attempt.job]
        units = job.size.get(name) / MILLI
        row = held[job.kind]
        first = max(0, int((attempt.began_s - start) // width))
        last = min(len(row) - 1, int((attempt.ended_s - start) // width))
        for place in range(first, last + 1):
            left, right = start + place * width, start + (place + 1) * width
            row[place] += units * max(0.0, min(attempt.ended_s, right) - max(attempt.began_s, left)) / width
    return held


def blocks(trace: Trace, cluster: Cluster, outcome: Outcome, from_s: float, to_s: float) -> list[Block]:
    """Return the stays that touch an interval, laid out on the GPUs of their nodes without overlap."""
    name = drawn_resource(cluster)
    free = [[(0.0, node.total.get(name) / MILLI)] for node in cluster.nodes]
    taken: list[tuple[float, int, list[tuple[float, float]]]] = []
    found: list[Block] = []
    stays = [each for each in outcome.attempts if each.nodes and each.held_s < to_s and each.ended_s > from_s]
    for stay in sorted(stays, key=lambda each: each.held_s):
        for ended, node, parts in [each for each in taken if each[0] <= stay.held_s]:
            free[node] = _joined(free[node] + parts)
            taken.remove((ended, node, parts))
        for node, bundle in zip(stay.nodes, trace.jobs[stay.job].bundles, strict=False):
            parts = _cut(free[node], _units(bundle, name))
            taken.append((stay.ended_s, node, parts))
            found += [Block(stay.job, node, low, high, stay.held_s, stay.ended_s, stay.is_last) for low, high in parts]
    return found


def _units(bundle: Amounts, name: str) -> float:
    return bundle.get(name) / MILLI


def _cut(free: list[tuple[float, float]], wanted: float) -> list[tuple[float, float]]:
    """Take so much from the free places of a node: one that is large enough, else several."""
    whole = next((place for place in free if place[1] - place[0] >= wanted - 1e-9), None)
    parts: list[tuple[float, float]] = []
    for low, high in [whole] if whole else list(free):
        if wanted <= 1e-9:
            break
        end = min(high, low + wanted)
        wanted -= end - low
        parts.append((low, end))
        free.remove((low, high))
        if end < high - 1e-9:
            free.append((end, high))
            free.sort()
    return parts


def _joined(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for low, high in sorted(places):
        if joined and low <= joined[-1][1] + 1e-9:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined
