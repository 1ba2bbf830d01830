"""P8.frontier: generated loads under each rule at every setting of its knob, compared at equal waiting or cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from headgate_bench.artifact import Bar, at_most
from headgate_bench.definition import Chart
from headgate_bench.elastic.replaying import EVERY_S, ElasticParameters, Tell
from headgate_replay.elastic import OURS, PROMPT_S, Load, Terms, contender, drawn, measured, roomy_site, terms_of

_PLAN: Final = "clairvoyant"


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy at one value of its knob: means over the seeds of one shape at one start time."""

    policy: str
    value: float
    cost: float
    p99_s: float
    operations: float
    prompt_share: float
    engine_h: float


@dataclass(frozen=True, slots=True)
class Field:
    """All settings of all policies on one shape at one start time.

    Attributes:
        ours: our policy with a pool's default settings.
        plan: the clairvoyant policy.
        peers: other systems' rules at every value of their knobs: the best one is known only in hindsight.
        swept: our policy at the other values of its knob; empty unless its frontier is wanted.
        windows: our policy with other values of `stable_window`, which is their `value`.
    """

    shape: str
    start_s: float
    ours: Setting
    plan: Setting
    peers: tuple[Setting, ...]
    swept: tuple[Setting, ...] = ()
    windows: tuple[Setting, ...] = ()

    @property
    def on(self) -> str:
        """Load and start time, as in the ids of bars."""
        return f"{self.shape}_{self.start_s:g}s"

    @property
    def cost(self) -> float:
        """Our cost over that of the cheapest peer that waits no longer; 0 if every peer waits longer."""
        return self._beside(lambda peer: peer.p99_s <= self.ours.p99_s, lambda setting: setting.cost)

    @property
    def goal(self) -> float:
        """Our engine-hours over those of the cheapest peer with as many prompt requests; 0 if there is none."""
        return self._beside(lambda peer: peer.prompt_share >= self.ours.prompt_share, lambda setting: setting.engine_h)

    @property
    def wait_s(self) -> float:
        """Our p99 waiting minus the shortest of the peers that cost no more; 0 if that is negative or there is none."""
        waits = [peer.p99_s for peer in self.peers if peer.cost <= self.ours.cost]
        return max(0.0, self.ours.p99_s - min(waits, default=math.inf))

    @property
    def operations(self) -> float:
        """Our operations over those of the plan, which counts as at least one."""
        return self.ours.operations / max(1.0, self.plan.operations)

    def _beside(self, is_as_good: Callable[[Setting], bool], price: Callable[[Setting], float]) -> float:
        prices = [price(peer) for peer in self.peers if is_as_good(peer)]
        return price(self.ours) / min(prices) if prices else 0.0


def fields(parameters: ElasticParameters, seed: int, tell: Tell) -> list[Field]:
    """Replay the generated loads of `drawn_seeds` odd seeds, which were not used to choose constants."""
    found = []
    for shape in parameters.drawn_shapes:
        seeds = [2 * (seed + number) + 1 for number in range(parameters.drawn_seeds)]
        loads = [drawn(shape, seed=each, scale=parameters.drawn_scale) for each in seeds]
        found += [_field(parameters, shape, loads, start_s, tell) for start_s in parameters.drawn_starts]
    return found


def replays(parameters: ElasticParameters) -> int:
    """Return the number of progress reports."""
    played = 2 + len(parameters.drawn_peers) + bool(parameters.drawn_windows)
    return len(parameters.drawn_shapes) * len(parameters.drawn_starts) * played


def _field(parameters: ElasticParameters, shape: str, loads: Sequence[Load], start_s: float, tell: Tell) -> Field:
    terms = [terms_of(*roomy_site(load, workers=parameters.workers, start_s=start_s)) for load in loads]
    site = terms[0].site

    def at(policy: str, values: Iterable[float]) -> tuple[Setting, ...]:
        tell(f"{shape}, {site.start_text}: {policy}")
        return tuple(_setting(policy, value, terms) for value in values)

    def sweep(policy: str) -> Sequence[float]:
        return contender(policy).sweep(terms[0])

    usual, swept = contender(OURS).value(terms[0]), OURS in parameters.frontiers
    (ours,), (plan,) = (at(OURS, [usual]), at(_PLAN, [contender(_PLAN).value(terms[0])]))
    peers = [setting for policy in parameters.drawn_peers for setting in at(policy, sweep(policy))]
    others = at(OURS, [value for value in sweep(OURS) if value != usual]) if swept else ()
    windows = []
    if parameters.drawn_windows:
        tell(f"{shape}, {site.start_text}: {OURS}, stable_window")
    for window_s in parameters.drawn_windows:
        under = [replace(each, config=each.config.model_copy(update={"stable_window": window_s})) for each in terms]
        windows.append(replace(_setting(OURS, usual, under), value=window_s))
    return Field(shape, start_s, ours, plan, tuple(peers), others, tuple(windows))


def _setting(policy: str, value: float, terms: Sequence[Terms]) -> Setting:
    made = [measured(each.load, contender(policy).play(each, value, at_most_every_s=EVERY_S)) for each in terms]
    return Setting(
        policy,
        float(value),
        fmean(each.cost for each in made),
        fmean(each.p99_s for each in made),
        fmean(each.operations for each in made),
        fmean(each.prompt_share for each in made),
        fmean(each.worker_s for each in made) / 3600,
    )


_HELD: Final = (
    ("cost", "cost by that of the cheapest rule of others that waits no longer at p99", "x"),
    ("wait_s", "p99 waiting beyond that of a rule of others that costs no more", "s"),
    ("goal", f"engine-hours by those of the cheapest rule of others with as many requests within {PROMPT_S:g} s", "x"),
    ("operations", "operations by those of the clairvoyant plan", "x"),
)
"""Attribute of a field, description, and unit."""


def frontier_bars(parameters: ElasticParameters, played: Sequence[Field]) -> list[Bar]:
    """Return the bars, each for the worst load and start time, with the values of all beside it."""
    limits = {
        "cost": parameters.bar_frontier_cost,
        "wait_s": parameters.bar_frontier_wait,
        "goal": parameters.bar_frontier_cost,
        "operations": parameters.bar_frontier_operations,
    }
    return [
        at_most(
            f"P8.frontier_{figure.removesuffix('_s')}",
            f"{what}, worst of {len(played)} drawn loads and starts",
            max(getattr(each, figure) for each in played),
            limits[figure],
            unit,
            {each.on: round(getattr(each, figure), 3) for each in played},
        )
        for figure, what, unit in _HELD
        if played
    ]


def frontier_charts(played: Sequence[Field]) -> list[Chart]:
    """Return a chart for each load and start time: the share of prompt requests over engine-hours, by policy."""
    charts = []
    for each in played:
        series: dict[str, list[tuple[float | str, float]]] = {}
        for setting in sorted((each.ours, each.plan, *each.peers, *each.swept), key=lambda one: one.engine_h):
            series.setdefault(setting.policy, []).append((setting.engine_h, 100 * setting.prompt_share))
        title = f"Requests within {PROMPT_S:g} s on {each.shape}, {each.start_s:g} s to start"
        charts.append(Chart(title, "engine-hours", f"% of requests within {PROMPT_S:g} s", "lines", series))
        if each.windows:
            charts.append(_windows_chart(each))
    return charts


def _windows_chart(field: Field) -> Chart:
    ours = sorted((field.ours, *field.windows), key=lambda one: one.operations)
    series: dict[str, list[tuple[float | str, float]]] = {f"{OURS}, by stable_window": _points(ours)}
    for peer in sorted(field.peers, key=lambda one: one.operations):
        series.setdefault(peer.policy, []).extend(_points([peer]))
    title = f"Waiting and operations on {field.shape}, {field.start_s:g} s to start"
    return Chart(title, "operations", "seconds of waiting at p99", "lines", series)


def _points(settings: Iterable[Setting]) -> list[tuple[float | str, float]]:
    return [(one.operations, one.p99_s) for one in settings]


def document(field: Field) -> dict[str, Any]:
    """Return a field as JSON values: a row of figures for each policy and setting."""
    rows = (field.ours, field.plan, *field.peers, *field.swept)
    columns = ("policy", "value", "cost", "p99_s", "operations", "prompt_share", "engine_h")
    found = {"settings": rows, "stable_windows": field.windows}
    return {"load": field.shape, "start": f"{field.start_s:g}s"} | {
        key: [{name: getattr(row, name) for name in columns} for row in settings] for key, settings in found.items()
    }
