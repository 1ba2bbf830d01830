"""Jobs with heavy tails through the ledger and its peers, and the cost of a decision while thousands wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, Final

from headgate.placement import PlacementLedger
from headgate.placement.outbox import CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import Pool
from headgate.placement.rules import PreemptionRules
from headgate_bench.artifact import Bar, at_most
from headgate_bench.definition import Chart
from headgate_replay.placement import (
    POLICIES,
    Cluster,
    Measures,
    Trace,
    at_load,
    cluster_of,
    heavy_tailed,
    measured,
    read_openb,
    without_durations,
)

PEERS: Final = ("ray", "fifo", "easy", "priority-easy", "single-victim-requeued", "least-attained")
"""Policies to match; shortest remaining time knows the truth, and serves as a bound."""

_BOUND: Final = "least-remaining"
_OURS: Final = "headgate, short_first "
_BANDS: Final = "headgate, bands "
_NODES: Final = 8
_NODES_OF_PODS: Final = 4
_LONGEST_POD_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Case:
    """A trace to replay, its cluster, and the kind of traces with which its results are averaged."""

    name: str
    kind: str
    trace: Trace
    cluster: Cluster


def drawn_cases(loads: Sequence[float], seeds: Iterable[int], jobs: int) -> list[Case]:
    """Return generated traces with heavy tails on 64 GPUs, each with and without stated durations."""
    cluster, found = cluster_of(_NODES), []
    for load, seed in product(loads, seeds):
        trace = heavy_tailed(cluster, jobs=jobs, load=load, seed=seed)
        found += _told_and_not(f"load {load:.0%}, seed {seed}", "heavy tails", trace, cluster)
    return found


def pod_cases(paths: Iterable[Path], pods: int, load: float) -> list[Case]:
    """Return `pods` pods from the middle of each list on 32 GPUs, with arrivals scaled to give `load`.

    Raises:
        InvalidTraceError: if a list cannot be read.
    """
    cluster, found = cluster_of(_NODES_OF_PODS), []
    for path in paths:
        trace = at_load(read_openb(path, longest_s=_LONGEST_POD_S), cluster, jobs=pods, load=load)
        found += _told_and_not(trace.name, trace.name, trace, cluster)
    return found


def _told_and_not(name: str, kind: str, trace: Trace, cluster: Cluster) -> list[Case]:
    return [
        Case(f"{name}, {what}", f"{kind}, {what}", each, cluster)
        for what, each in (("durations told", trace), ("durations not told", without_durations(trace)))
    ]


@dataclass(frozen=True, slots=True)
class Played:
    """The results of one trace: the ledger by `short_first` and with fewer bands, its peers, and the bound."""

    name: str
    kind: str
    ours: dict[float, Measures]
    bands: dict[int, Measures]
    peers: dict[str, Measures]
    bound: Measures

    def document(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "trace": self.name,
            "short_first": {f"{setting:g}": asdict(each) for setting, each in self.ours.items()},
            "bands": {f"{bands}": asdict(each) for bands, each in self.bands.items()},
            "peers": {name: asdict(each) for name, each in (*self.peers.items(), (_BOUND, self.bound))},
        }


def played(
    cases: Iterable[Case], settings: Sequence[float], bands: Sequence[int], tell: Callable[[str], None]
) -> list[Played]:
    """Replay every trace under each setting, with fewer `bands` under the default setting, and under each peer."""
    found, default = [], PreemptionRules().short_first
    for case in cases:
        tell(case.name)

        def play(policy: str, setting: float = default, bands: int | None = None, case: Case = case) -> Measures:
            outcome = POLICIES[policy](_merged(case.trace, bands), case.cluster, PreemptionRules(short_first=setting))
            return measured(case.trace, case.cluster, outcome)

        ours = {setting: play("headgate", setting) for setting in settings}
        fewer = {each: play("headgate", bands=each) for each in bands}
        found.append(Played(case.name, case.kind, ours, fewer, {each: play(each) for each in PEERS}, play(_BOUND)))
    return found


def _merged(trace: Trace, bands: int | None) -> Trace:
    """Return the same jobs with at most `bands` priorities: the lowest ones are merged."""
    if bands is None:
        return trace
    highest = sorted({job.priority for job in trace.jobs}, reverse=True)[:bands]
    return replace(trace, jobs=tuple(replace(job, priority=max(job.priority, highest[-1])) for job in trace.jobs))


def heavy_bars(traces: Sequence[Played], cpu_ms: float, waiting: int, limits: Any) -> list[Bar]:
    """Return the bars of traces under the default setting; for each bar the worst trace counts."""
    default = PreemptionRules().short_first
    worst: dict[str, tuple[float, str]] = {}
    for each in traces:
        ours = each.ours[default]
        easy = each.peers["priority-easy"]
        for name, value in {
            "wait": _over(ours.all.mean_s, min(peer.all.mean_s or 0.0 for peer in each.peers.values())),
            "wide": _over(ours.widest.p95_s, easy.widest.p95_s),
            "high": ours.high_p95_s,
            "slowdown": _over(ours.slowdown_p95, min(peer.slowdown_p95 or 1.0 for peer in each.peers.values())),
            "lost": inf if ours.lost_over_least_in_band is None else ours.lost_over_least_in_band,
        }.items():
            worst[name] = max(worst.get(name, (-inf, "")), (value, each.name))
    bars = [
        at_most(f"P7.trace_{name}", f"{what}, worst of {len(traces)} traces", value, bar, unit, {"on": where})
        for (name, (value, where)), (what, bar, unit) in zip(
            worst.items(),
            (
                ("mean waiting over that of the best peer", limits.bar_trace_wait, "x"),
                ("waiting of the widest work at p95 over that under priority + EASY", limits.bar_trace_wide, "x"),
                ("waiting of the highest band at p95", limits.bar_trace_high_s, "s"),
                ("bounded slowdown at p95 over that of the best peer", limits.bar_trace_slowdown, "x"),
                ("lost work over the least of the same bands", limits.bar_lost, "x"),
            ),
            strict=True,
        )
    ]
    what = f"CPU of the ledger per event while {waiting:,} requests wait for 240 GPUs"
    return [*bars, at_most("P7.trace_cpu", what, cpu_ms, limits.bar_trace_cpu_ms, "ms")]


def heavy_notes(traces: Sequence[Played]) -> list[str]:
    """Return notes on the frontiers along `short_first` and bands, and on peers: means over the traces of a kind."""
    return [
        f"{kind}, {name}: mean waiting {_mean(each.all.mean_s for each in found):,.0f} s, p95 of the widest "
        f"{_mean(each.widest.p95_s for each in found):,.0f} s, of the highest band "
        f"{_mean(each.high_p95_s for each in found):,.1f} s, bounded slowdown at p95 "
        f"{_mean(each.slowdown_p95 for each in found):.1f}, "
        f"{_mean(each.lost_gpu_s / 3600 for each in found):.1f} GPU-h lost, "
        f"{_mean(each.cpu_ms for each in found):.2f} ms of CPU per event; means of {len(found)} traces."
        for kind, rows in _by_kind(traces).items()
        for name, found in rows.items()
    ]


def frontiers(traces: Sequence[Played]) -> list[Chart]:
    """Return a chart for each kind: mean waiting against the widest work's, along `short_first` and along bands."""
    charts = []
    for kind, rows in _by_kind(traces).items():
        along = " to ".join(f"{setting:g}" for setting in (min(traces[0].ours), max(traces[0].ours)))
        series: dict[str, list[tuple[float | str, float]]] = {}
        for name, found in rows.items():
            point = (
                max(1.0, _mean(each.all.mean_s for each in found)),
                max(1.0, _mean(each.widest.p95_s for each in found)),
            )
            line = f"short_first {along}" if name.startswith(_OURS) else name
            series.setdefault("fewer bands" if name.startswith(_BANDS) else line, []).append(point)
        title = f"Mean waiting against the widest work's, {kind}"
        charts.append(Chart(title, "mean waiting, s", "p95 of the widest, s", "lines", series, log="xy"))
    return charts


def _by_kind(traces: Sequence[Played]) -> dict[str, dict[str, list[Measures]]]:
    """Return the measures by kind of trace and policy, the ledger's first."""
    kinds: dict[str, dict[str, list[Measures]]] = {}
    for each in traces:
        rows = kinds.setdefault(each.kind, {})
        for setting, ours in sorted(each.ours.items()):
            rows.setdefault(f"{_OURS}{setting:g}", []).append(ours)
        for bands, ours in each.bands.items():
            rows.setdefault(f"{_BANDS}{bands}", []).append(ours)
        for peer in (*each.peers.values(), each.bound):
            rows.setdefault(peer.policy, []).append(peer)
    return kinds


def _over(value: float | None, other: float | None) -> float:
    """Return the ratio of two values; seconds and slowdowns below one count as one."""
    return max(1.0, value or 0.0) / max(1.0, other or 0.0)


def _mean(values: Iterable[float | None]) -> float:
    found = [value for value in values if value is not None]
    return sum(found) / max(1, len(found))


def cpu_ms_of_waiting(waiting: int, events: int) -> float:
    """Return CPU milliseconds per event while `waiting` requests wait: work ends, starts and is submitted."""
    cluster = cluster_of(30)
    ledger = _Crowd(cluster, waiting + events)
    while len(ledger.ledger.queue) < waiting:
        ledger.hand_in()
    ledger.settle()
    began, ledger.reports = time.process_time(), 0
    while ledger.reports < events:
        ledger.end_one()
        ledger.hand_in()
        ledger.settle()
    return 1_000 * (time.process_time() - began) / ledger.reports


class _Crowd:
    """A ledger whose commands are executed at once; owned by one measurement."""

    def __init__(self, cluster: Cluster, jobs: int) -> None:
        self.ledger = PlacementLedger(LedgerSettings(driver_lease_s=inf), PreemptionRules())
        self.reports = 0
        self._now = 0.0
        self._jobs = iter(without_durations(heavy_tailed(cluster, jobs=2 * jobs, load=1.0)).jobs)
        self._running: dict[str, int] = {}
        self.ledger.see_nodes(cluster.nodes, 0.0)
        self.ledger.open_pool(Pool("p", cluster.total, max_dynamic=None), 0.0)

    def hand_in(self) -> None:
        """Submit the next job; the ledger decides about it in the next `settle`."""
        self.ledger.submit(next(self._jobs).request("p"), "bench", self._now)
        self._report()

    def end_one(self) -> None:
        """End the work that started first."""
        name = next(iter(self._running))
        self.ledger.work_ended(name, self._running.pop(name), self._now)
        self.ledger.forget(name)
        self._report()

    def settle(self) -> None:
        """Decide and execute the commands, until there are none."""
        self._now += 10.0
        commands = self.ledger.decide(self._now)
        while commands:
            for command in commands:
                self._carry_out(command)
                self._report()
            commands = self.ledger.decide(self._now)
        self.ledger.outbox.take_events()
        self.ledger.outbox.take_changes()

    def _carry_out(self, command: CreateGroup | RemoveGroup | StartWork | StopWork) -> None:
        match command:
            case CreateGroup():
                self.ledger.group_created(command.group_id, command.epoch, command.nodes, self._now)
            case RemoveGroup():
                self.ledger.group_gone(command.group_id, command.epoch, self._now)
            case StartWork():
                self._running[command.request_id] = command.epoch
                self.ledger.work_started(command.request_id, command.epoch, self._now)
            case StopWork():
                self._running.pop(command.request_id, None)
                self.ledger.work_stopped(command.request_id, command.epoch, self._now, saved=True, dead=True)

    def _report(self) -> None:
        self.reports += 1
