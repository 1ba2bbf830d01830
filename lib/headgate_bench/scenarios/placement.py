"""P7: GPU placement on Ray: starts, preemption, leaks, waiting and lost work of replayed traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from headgate.placement.rules import checked_rules
from headgate_bench.artifact import Bar, at_least, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario
from headgate_bench.placement.heavy_tails import (
    cpu_ms_of_waiting,
    drawn_cases,
    frontiers,
    heavy_bars,
    heavy_notes,
    played,
    pod_cases,
)
from headgate_bench.placement.lies import lie_bars, lies
from headgate_bench.placement.site import PlainRay, plain_ray, site
from headgate_bench.placement.stops import Cycles, Stops, cycles, starts, stops
from headgate_replay.placement import Comparison, Measures, cluster_of, compared, generated

POLICIES: Final = ("headgate", "ray", "fifo", "single-victim-requeued", "clairvoyant")

_EVENTS: Final = 200
"""Number of events over which CPU time is measured while requests wait."""

_LABELS: Final = {"role": {"train": ["reward", "rollout"], "reward": ["rollout"]}}


@dataclass(frozen=True, slots=True)
class PlacementParameters:
    """Parameters of the scenario."""

    nodes: int = 2  # nodes of the Ray cluster besides its head, each with 2 logical GPUs
    starts: int = 60  # starts of work in a reserved group with a warm host
    rival_starts: int = 5  # starts of an actor by plain Ray; they take a hundred times as long
    stops: int = 8  # preemptions of work that stops when asked
    stuck_stops: int = 3  # preemptions of work that does not
    cycles: int = 25  # consecutive cycles of submit, preempt and end, after which nothing may be left
    cancel_timeout_s: float = 0.5  # grace period of stopped work
    hours: float = 3.0  # replayed length of each generated mix
    mixes: tuple[str, ...] = ("rlhf",)  # mixes to replay
    trace_jobs: int = 100  # jobs of each drawn trace with heavy tails
    trace_loads: tuple[float, ...] = (0.9,)  # loads of drawn traces
    trace_seeds: tuple[int, ...] = (1,)  # seeds that are reported; the defaults were chosen on seeds from 10 on
    trace_settings: tuple[float, ...] = (0.0, 10.0)  # values of `short_first` along the frontier, with the default
    trace_bands: tuple[int, ...] = ()  # numbers of bands to keep, merging the lowest, to measure the cost of bands
    trace_pods: int = 200  # pods taken from the middle of each given list
    trace_pods_load: float = 1.2  # load of 32 GPUs to which the pods' arrivals are sped up
    waiting: int = 1_000  # waiting requests while CPU time is measured
    bar_start_ms: float = 10.0  # maximum p95 from submit to running
    bar_stop_more_ms: float = 100.0  # maximum time of a stop beyond `cancel_timeout_s`
    bar_wait: float = 1.0  # maximum p95 wait of high-priority work, relative to that under FIFO
    bar_lost: float = 1.2  # maximum lost work over the least possible with victims of the same bands
    bar_trace_wait: float = 1.0  # maximum mean wait in drawn traces, relative to that of the best peer
    bar_trace_wide: float = 1.0  # maximum p95 wait of the widest work, relative to that under priority + EASY
    bar_trace_high_s: float = 1.0  # maximum p95 wait of the highest band
    bar_trace_slowdown: float = 0.5  # maximum p95 of bounded slowdown, relative to that of the best peer
    bar_trace_cpu_ms: float = 1.0  # maximum CPU time per event
    bar_trace_lie: float = 1.0  # minimum mean wait of an owner who understates, relative to that with the truth
    bar_trace_lied_to: float = 1.1  # maximum mean wait of all others while one owner understates, likewise


def measure(parameters: PlacementParameters, bench: Bench) -> Outcome:
    """Return the figures of placement: first on a real cluster, then in replays."""
    p = parameters
    pods = pod_cases(bench.traces, p.trace_pods, p.trace_pods_load)
    bench.progress(0.0, "starting a Ray cluster")
    with site(p.nodes, cancel_timeout_s=p.cancel_timeout_s) as there:
        started = starts(there, p.starts, _told(bench, 0.15, 0.3, p.starts, "starts"))
        willing = stops(there, p.stops, is_stuck=False, progress=_told(bench, 0.3, 0.4, p.stops, "stops"))
        told = _told(bench, 0.4, 0.5, p.stuck_stops, "stops of stuck work")
        stuck = stops(there, p.stuck_stops, is_stuck=True, progress=told)
        cycled = cycles(there, p.cycles, _told(bench, 0.5, 0.7, p.cycles, "cycles"))
        bench.progress(0.7, "plain Ray")
        rival = plain_ray(p.rival_starts, there.gpus)
    replays = {mix: _replayed(p, mix, bench) for mix in p.mixes}
    cases = [*drawn_cases(p.trace_loads, p.trace_seeds, p.trace_jobs), *pods]
    drawn = played(cases, p.trace_settings, p.trace_bands, _drawing(bench))
    lied = lies(cases, _drawing(bench))
    said = [note for each in pods for note in each.trace.notes]
    bench.progress(0.95, f"{p.waiting} requests wait")
    cpu_ms = cpu_ms_of_waiting(p.waiting, _EVENTS)
    return Outcome(
        bars=[
            *_ray_bars(p, started, willing, stuck, cycled, rival),
            *(bar for mix, comparison in replays.items() for bar in _replay_bars(p, mix, comparison)),
            *heavy_bars(drawn, cpu_ms, p.waiting, p),
            *lie_bars(lied, p.bar_trace_lie, p.bar_trace_lied_to),
        ],
        samples=[
            {"starts_ms": started},
            *(asdict(each) for each in (willing, stuck, cycled, rival)),
            *(each.document() for each in replays.values()),
            *(each.document() for each in drawn),
            *(each.document() for each in lied),
        ],
        charts=[*(_waiting_chart(mix, comparison) for mix, comparison in replays.items()), *frontiers(drawn)],
        notes=[
            *_notes(p, stuck, replays),
            *heavy_notes(drawn),
            *dict.fromkeys(said),
        ],
    )


def _replayed(parameters: PlacementParameters, mix: str, bench: Bench) -> Comparison:
    """Replay a generated mix of 32 GPUs on 4 nodes at a load of 0.9."""
    cluster = cluster_of()
    trace = generated(mix, cluster, hours=parameters.hours, seed=bench.seed)
    rules = checked_rules(label_rules=_LABELS)

    def tell(policy: str) -> None:
        bench.progress(0.8, f"replaying {mix} under {policy}")

    return compared(trace, cluster, rules, POLICIES, tell=tell)


def _drawing(bench: Bench) -> Callable[[str], None]:
    return lambda name: bench.progress(0.9, f"replaying {name}")


def _ray_bars(
    parameters: PlacementParameters,
    started: Sequence[float],
    willing: Stops,
    stuck: Stops,
    cycled: Cycles,
    rival: PlainRay,
) -> list[Bar]:
    bar_ms = 1_000 * parameters.cancel_timeout_s + parameters.bar_stop_more_ms
    return [
        at_most(
            "P7.start",
            "from submit to running in a reserved group with a warm host, p95",
            float(np.quantile(started, 0.95, method="inverted_cdf")),
            parameters.bar_start_ms,
            "ms",
            {"an actor in a ready group, median": float(np.median(rival.start_ms))},
        ),
        at_most(
            "P7.preempt",
            "from submit to running when willing work is stopped first, worst",
            max(willing.running_ms),
            bar_ms,
            "ms",
            {"a group handed over by Ray, median": float(np.median(rival.hand_over_ms))},
        ),
        at_most(
            "P7.stuck",
            "from the decision until stuck work is seen dead, worst",
            max(stuck.dead_ms),
            bar_ms,
            "ms",
            {"until its preemptor runs, worst": max(stuck.running_ms), "ScheduleMesh": "waits for ever"},
        ),
        at_least(
            "P7.victims",
            "victims that ran again with their place in line, of all",
            (willing.finished + stuck.finished) / (willing.victims + stuck.victims),
            1.0,
            "of all",
            {"ScheduleMesh": "0: victims are lost"},
        ),
        at_most(
            "P7.leaks",
            f"groups and actors left or missing after {cycled.cycles} cycles with {cycled.preemptions} preemptions",
            cycled.leaked + abs(1 - cycled.reserved) + (cycled.cycles - cycled.victims_done),
            0,
            "differences",
        ),
    ]


def _replay_bars(parameters: PlacementParameters, mix: str, comparison: Comparison) -> list[Bar]:
    ours, *others = comparison.measures
    fifo_s = _seconds(comparison.measures[POLICIES.index("fifo")])
    return [
        at_most(
            f"P7.lost_{mix}",
            "lost work over the least that victims of the same bands could have lost",
            float("nan") if ours.lost_over_least_in_band is None else ours.lost_over_least_in_band,
            parameters.bar_lost,
            "x",
            {other.policy: _ratio(other.lost_over_least_in_band) for other in others if other.decisions},
        ),
        at_most(
            f"P7.wait_{mix}",
            "waiting of high-priority work at p95, as a share of what it is first come, first served",
            _seconds(ours) / fifo_s,
            parameters.bar_wait,
            "of FIFO",
            {other.policy: _seconds(other) / fifo_s for other in others},
        ),
    ]


def _seconds(measures: Measures) -> float:
    return float("nan") if measures.high.p95_s is None else measures.high.p95_s


def _ratio(value: float | None) -> float | str:
    return "more than nothing, where nothing was needed" if value is None else value


def _notes(parameters: PlacementParameters, stuck: Stops, replays: Mapping[str, Comparison]) -> list[str]:
    notes = [
        f"Ray runs {parameters.nodes} nodes with 2 logical GPUs each beside its head, all on this machine.",
        "The rival starts its actors on the same tuned cluster; with Ray's defaults a hand-over takes a second.",
        f"After stuck work was killed its group starts a new process: {max(stuck.running_ms):.0f} ms until running.",
    ]
    notes.extend(_said(mix, measures) for mix, comparison in replays.items() for measures in comparison.measures)
    return notes


def _said(mix: str, measures: Measures) -> str:
    return (
        f"{mix}, {measures.policy}: high-priority p95 {measures.high.p95_s or 0:.0f} s, useful {measures.useful:.1%} "
        f"of the GPUs, {measures.lost_gpu_s / 3_600:.2f} GPU-h lost, {measures.preemptions} stops, "
        f"{measures.never_done} never done."
    )


def _waiting_chart(mix: str, comparison: Comparison) -> Chart:
    return Chart(
        f"High-priority waiting at p95, mix {mix}",
        "policy",
        "seconds",
        "bars",
        {"p95": [(measures.policy, _seconds(measures)) for measures in comparison.measures]},
    )


def _told(bench: Bench, start: float, end: float, count: int, what: str) -> Callable[[int], None]:
    return lambda number: bench.progress(start + (end - start) * number / max(1, count), what)


SCENARIO = Scenario(
    name="placement",
    quick=PlacementParameters(),
    full=PlacementParameters(
        starts=500,
        rival_starts=20,
        stops=50,
        stuck_stops=10,
        cycles=1_000,
        hours=12.0,
        mixes=("rlhf", "gangs", "storm"),
        trace_jobs=400,
        trace_loads=(0.7, 0.9, 1.1),
        trace_seeds=(1, 2, 3, 4, 5),
        trace_settings=(0.0, 1.0, 3.0, 10.0, 30.0, 100.0),
        trace_bands=(3, 2, 1),
        trace_pods=2_000,
        waiting=5_000,
    ),
    measure=measure,
    reads_traces=True,
)
