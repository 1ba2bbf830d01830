"""P8: elastic pools on the ramp and on public traces: cost, waiting and scaling, next to the rules of other systems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Final

from headgate_bench.artifact import Bar, at_least, at_most
from headgate_bench.definition import Bench, Outcome, Scenario, Spread, spread_of
from headgate_bench.elastic.charts import charts_of
from headgate_bench.elastic.frontier import document, fields, frontier_bars, frontier_charts, replays
from headgate_bench.elastic.replaying import ElasticParameters, Played, Probes, probes, ramps, traces
from headgate_replay.elastic import CONTENDERS, OURS, SHAPES, replay_page


def measure(parameters: ElasticParameters, bench: Bench) -> Outcome:
    """Return how the policies perform on the ramp, on the given traces, and on short loads."""
    tell = _counted(parameters, bench)
    played = [*traces(parameters, bench, tell), *ramps(parameters, bench, tell)]
    short = probes(parameters, tell)
    on_drawn = fields(parameters, bench.seed, tell)
    return Outcome(
        bars=[
            *(bar for each in played for bar in _bars(parameters, each)),
            _lost(played),
            *_short(parameters, short),
            *frontier_bars(parameters, on_drawn),
        ],
        samples=[
            *({"load": each.name, "start": each.start} | each.comparison.document() for each in played),
            asdict(short),
            *(document(each) for each in on_drawn),
        ],
        ratios=_ratios(played),
        charts=[*(chart for each in played for chart in charts_of(each)), *frontier_charts(on_drawn)],
        notes=_notes(parameters, played),
        files={"elastic.html": replay_page([each.comparison for each in played])},
    )


def _bars(parameters: ElasticParameters, played: Played) -> list[Bar]:
    start = played.start
    limits = {
        "cost": getattr(parameters, f"bar_cost_{start}"),
        "wait": getattr(parameters, f"bar_wait_{start}"),
        "operations": parameters.bar_operations,
        "worth": parameters.bar_worth,
    }
    bars = []
    for name, what, figure, unit in _HELD:
        make, worst = (at_least, min) if name == "worth" else (at_most, max)
        beside: dict[str, float | str] = {each.policy: getattr(each, figure) for each in played.others}
        if name == "cost":
            bounds = played.comparison.bounds
            beside |= {f"no policy below, nobody waits over {bound.wait_s:g} s": bound.cost for bound in bounds}
        value = worst(getattr(each, figure) for each in played.ours)
        bars.append(
            make(f"P8.{played.name}_{name}_{start}", f"{what}, {_on(played)}", value, limits[name], unit, beside)
        )
    return bars


_HELD: Final = (
    ("cost", "worker-seconds by what the work takes at least", "cost", "x"),
    ("wait", "p99 of waiting", "p99_s", "s"),
    ("operations", "workers started, drained or turned back", "operations", "operations"),
    ("worth", "active periods of three starts or longer", "worth_share", "of all"),
)
"""Name in the ids of bars, description, attribute of a replay, and unit."""


def _lost(played: Iterable[Played]) -> Bar:
    ours = [each for one in played for each in one.ours]
    calls = sum(len(one.ours) * len(one.comparison.load.calls) for one in played)
    return at_most(
        "P8.lost",
        f"requests of {calls:,} that were dropped or answered twice",
        sum(each.dropped + each.doubled for each in ours),
        0,
        "requests",
    )


def _short(parameters: ElasticParameters, short: Probes) -> list[Bar]:
    p = parameters
    steady = f"operations in {p.steady_s:g} s of 7 requests in flight on 2 workers of 8 slots"
    backlog = f"workers drained while requests of a backlog of {p.backlog} wait"
    found: list[tuple[str, str, Mapping[str, float], float, str]] = [
        ("steady", steady, short.steady, p.bar_steady, "operations"),
        ("backlog", backlog, short.backlog, p.bar_backlog, "workers"),
    ]
    for start, starts in short.step.items():
        what = f"from a sudden load of {p.step} workers until {p.step} serve it, {start} to start"
        found.append((f"step_{start}", what, starts, p.bar_step, "starts"))
    return [
        at_most(f"P8.{name}", what, values[OURS], bar, unit, _others(values)) for name, what, values, bar, unit in found
    ]


def _others(found: Mapping[str, float]) -> dict[str, float | str]:
    return {name: value for name, value in found.items() if name != OURS}


def _ratios(played: Iterable[Played]) -> dict[str, Spread]:
    figures = {"cost": "cost", "p99 waiting (s)": "p99_s", "operations": "operations"}
    return {
        f"{OURS}: {what}, {_on(each)}": spread_of([getattr(one, figure) for one in each.ours])
        for each in played
        if len(each.ours) > 1
        for what, figure in figures.items()
    }


def _on(played: Played) -> str:
    return f"{played.comparison.load.name}, {played.start} to start"


def _notes(parameters: ElasticParameters, played: Iterable[Played]) -> list[str]:
    said = [note for each in played for note in each.comparison.load.notes]
    notes = [
        "All times are simulated, exact, and the same on every machine; the pool is the one that serves real requests.",
        f"Held to the bars: {OURS}, with the settings that a pool has by default.",
        "A rule of others is carried out by our pool: it drains and routes as ours do.",
        "verl's pool hands out one request a worker every 5 s: its rule sees idle workers behind a backlog.",
        *dict.fromkeys(said),
    ]
    if parameters.seeds > 1:
        notes.append(f"Of the ramps with {parameters.seeds} seeds the worst counts; the others run on the first.")
    return notes


def _counted(parameters: ElasticParameters, bench: Bench) -> Callable[[str], None]:
    """Return a function that reports progress as a share of the expected number of steps."""
    each = len(parameters.rivals) + 1 + 6 * len(parameters.frontiers)
    total = 2 * (each * (1 + len(bench.traces)) + parameters.seeds - 1) + 1 + replays(parameters)
    done = 0

    def tell(what: str) -> None:
        nonlocal done
        bench.progress(min(0.99, done / total), what)
        done += 1

    return tell


SCENARIO = Scenario(
    name="elastic",
    quick=ElasticParameters(),
    full=ElasticParameters(
        seeds=3,
        drawn_shapes=SHAPES,
        drawn_seeds=5,
        drawn_scale=1.0,
        drawn_starts=(1.0, 10.0, 30.0, 120.0),
        drawn_peers=("verl", "ray-serve", "ray-serve-5-60", "knative", "fixed"),
        drawn_windows=(6.0, 10.0, 40.0),
        rivals=tuple(name for name in CONTENDERS if name != OURS),
        frontiers=("predictive", "target", "threshold", "verl", "ray-serve-5-60", "knative", "fixed", "clairvoyant"),
    ),
    measure=measure,
    reads_traces=True,
)
