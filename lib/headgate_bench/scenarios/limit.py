"""P2: goodput and 429s of limit laws at simulated providers, next to DataDesigner's law and inspect_ai's rule."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, Final

from headgate.admission.laws import AdaptiveLaw, AimdLaw, LimitLaw
from headgate.core.rates import UNLIMITED
from headgate_bench.artifact import Bar, at_least, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario, Spread, spread_of
from headgate_bench.limited_providers import LoadRecord, ProviderScript, SlotPolicy, load
from headgate_bench.minute_buckets import MinuteBuckets
from headgate_bench.rated_provider import RatedCase, RatedRecord, rated_case, stated_rates
from headgate_bench.rivals import litellm_router
from headgate_bench.rivals.limit_rules import FixedRule, InspectRule, OracleRule
from headgate_bench.token_rates import (
    ControllerRule,
    LiteLLMRule,
    Rule,
    play_rated,
)
from headgate_bench.token_rates import OracleRule as RatedOracle

Z_95: Final = 1.645
"""Standard score of the 95th percentile."""

CASES: Final = ("S1", "S2", "S3", "S3b", "S4", "S5")


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of the cases; bar P2 is measured with the defaults."""

    cap: int = 40  # concurrent requests; a rate cap is this many per service time
    mean_s: float = 2.0  # mean service time
    cv: float = 0.5  # coefficient of variation of the service times
    seconds: float = 600.0  # simulated time
    max_limit: int = 100  # the static cap given to the laws
    bucket: float = 20.0  # bucket size of a rate-limited provider, in tokens


VARIANTS: Final[Mapping[str, Setting]] = {
    "cv 1": Setting(cv=1.0),
    "service 0.5 s": Setting(mean_s=0.5),
    "service 10 s": Setting(mean_s=10.0),
    "service 10 s, an hour": Setting(mean_s=10.0, seconds=3_600.0),
    "cap 8": Setting(cap=8),
    "cap 200 of 400": Setting(cap=200, max_limit=400),
    "max 1000": Setting(max_limit=1_000),
    "bucket 4": Setting(bucket=4.0),
}
"""Settings that were not used to choose the law's constants."""


def script(case: str, setting: Setting) -> ProviderScript:
    """Return the provider of a case."""
    cap, third = float(setting.cap), setting.seconds / 3
    steady = ProviderScript(caps=((0.0, cap),), mean_s=setting.mean_s, cv=setting.cv, bucket=setting.bucket)
    rated = replace(steady, counted="rate", caps=((0.0, cap / setting.mean_s),))
    match case:
        case "S1":
            return steady
        case "S2":
            return replace(steady, caps=((0.0, cap), (third, 2 * cap), (2 * third, cap / 2)))
        case "S3":
            return rated
        case "S3b":
            return replace(rated, retry_after_s=5.0)
        case "S4":
            return replace(steady, failing_share=0.05)
        case _:
            return replace(steady, counted="sharing")


@dataclass(frozen=True, slots=True)
class Contender:
    """A law, and whether a request in back-off keeps its slot."""

    name: str  # name in tables
    # Makes the law from its maximum and the provider; only the oracle uses the provider.
    make: Callable[[int, ProviderScript], LimitLaw]
    policy: SlotPolicy = "held"  # the policy of the law's origin


OURS: Final = Contender("adaptive", lambda most, _: AdaptiveLaw(most))
DATA_DESIGNER: Final = Contender("DataDesigner", lambda most, _: AimdLaw(most), "released")
INSPECT: Final = Contender("inspect_ai's rule", lambda most, _: InspectRule(most))
RIVALS: Final = (
    DATA_DESIGNER,
    INSPECT,
    Contender("fixed at the maximum", lambda most, _: FixedRule(most)),
    Contender("oracle", lambda _, provider: OracleRule(provider)),
)


def play(
    contender: Contender, provider: ProviderScript, *, setting: Setting, seed: int, policy: SlotPolicy
) -> LoadRecord:
    """Return one run of a contender on a provider."""
    law = contender.make(setting.max_limit, provider)
    return load(provider, law, seed=seed, seconds=setting.seconds, policy=policy)


_STEP_AT_S = 200.0
_STORM_S = 300.0
_POLICIES: tuple[SlotPolicy, ...] = ("held", "released")


@dataclass(frozen=True, slots=True)
class LimitParameters:
    """Parameters of the scenario."""

    seconds: float = 600.0  # simulated time of a run
    seeds: int = 5  # runs of our law per case
    rival_seeds: int = 2  # runs of each rival per case
    # Further settings with which our law is measured, by name; `all` for all of them.
    variants: tuple[str, ...] = ()
    variant_seeds: int = 3  # runs per case and variant, with other seeds than the bar's
    # Minimum goodput in percent of capacity, in S1, S2, S3, S3b, S4 and S5.
    bar_goodput: tuple[float, ...] = (98.0, 94.0, 98.0, 98.0, 98.0, 95.0)
    # Maximum percentage of attempts answered 429, in S1, S2, S3, S3b and S4.
    bar_refused: tuple[float, ...] = (1.0, 1.5, 2.5, 2.5, 1.0)
    bar_p95: float = 1.3  # maximum 95th percentile of latency in S5, relative to the oracle's
    bar_down: float = 5.0  # maximum service times until the limit follows a cap cut to a quarter within 10 %
    bar_up_s: float = 60.0  # maximum seconds until 90 % of a doubled cap are used
    rated_seconds: float = 1_800.0  # simulated time of a run of S6 to S9
    rated_seeds: int = 2  # runs of every contender in S6 to S9
    router_seconds: float = 120.0  # simulated time of a run of LiteLLM's real router in S6 to S8
    router_seeds: int = 1  # runs of each of its setups
    bar_rated: float = 95.0  # minimum percentage of the oracle's tokens, in S6 to S9
    bar_rated_refused: float = 2.0  # maximum percentage of attempts answered 429, in S6 to S9
    bar_unfair: float = 5.0  # maximum percentage by which a group of S7 misses its share of the scarce tokens
    bar_storm_s: float = 60.0  # maximum seconds from the end of a storm of 429s until 90 % of the capacity are used


@dataclass(frozen=True, slots=True)
class _Job:
    """One run, and the table to which it belongs."""

    table: str
    case: str
    contender: Contender
    policy: SlotPolicy
    setting: Setting
    seed: int

    def run(self) -> dict[str, Any]:
        provider = script(self.case, self.setting)
        record = play(self.contender, provider, setting=self.setting, seed=self.seed, policy=self.policy)
        return {
            "table": self.table,
            "case": self.case,
            "law": self.contender.name,
            "slots": self.policy,
            "seed": self.seed,
            # Good answers in percent of the provider's capacity; percentage of attempts answered 429; latency relative
            # to that without a queue.
            "goodput": 100 * len(record.answered_at) / provider.capacity(record.seconds),
            "refused": 100 * record.refused_share,
            "p95": record.latency_s(0.95) / provider.latency_quantile_s(Z_95),
            "lost": record.lost,
        }


def measure(parameters: LimitParameters, bench: Bench) -> Outcome:
    """Return goodput, refusals and latency of our law and its rivals in every case, and how they follow changes."""
    jobs = list(_jobs(parameters, bench.seed))
    samples = []
    for number, job in enumerate(jobs):
        bench.progress(number / (len(jobs) + 1), f"{job.table}: {job.contender.name}, {job.case}")
        samples.append(job.run())
    bench.progress(len(jobs) / (len(jobs) + 1), "steps and storms")
    changes = [
        _changes(contender, policy, seed)
        for contender in (OURS, DATA_DESIGNER, INSPECT)
        for policy in (_POLICIES if contender is OURS else (contender.policy,))
        for seed in _seeds(bench.seed, parameters.seeds if contender is OURS else parameters.rival_seeds)
    ]
    rated = list(_rated(parameters, bench.seed))
    routers = _routers(parameters, bench.seed)
    bars = [*_case_bars(samples, parameters), *_change_bars(changes, parameters)]
    bars += _rated_bars(rated, routers, parameters)
    bars.append(_lost_bar(samples, [*changes, *rated]))
    return Outcome(
        bars,
        [*samples, *changes, *rated, *routers.rows],
        _tables(samples),
        _charts(samples, parameters, bench.seed),
        routers.notes,
    )


def _seeds(first: int, count: int) -> range:
    return range(first, first + count)


def _jobs(parameters: LimitParameters, seed: int) -> Iterator[_Job]:
    setting = Setting(seconds=parameters.seconds)
    ours, rivals = _seeds(seed, parameters.seeds), _seeds(seed, parameters.rival_seeds)
    for case in CASES:
        yield from (_Job("bar", case, OURS, OURS.policy, setting, number) for number in ours)
        for rival in RIVALS:
            yield from (_Job("bar", case, rival, rival.policy, setting, number) for number in rivals)
        for contender in (OURS, DATA_DESIGNER):
            for policy in _POLICIES:
                if policy != contender.policy:
                    yield from (_Job("slots", case, contender, policy, setting, number) for number in rivals)
    names = tuple(VARIANTS) if parameters.variants == ("all",) else parameters.variants
    for name in names:
        for case in CASES:
            for number in _seeds(seed + 1_000, parameters.variant_seeds):
                yield _Job(name, case, OURS, OURS.policy, VARIANTS[name], number)


# Changes of the provider.


def _changes(contender: Contender, policy: SlotPolicy, seed: int) -> dict[str, Any]:
    down = _play_change(contender, policy, seed, ProviderScript(caps=((0.0, 80.0), (_STEP_AT_S, 20.0))))
    up = _play_change(contender, policy, seed, ProviderScript(caps=((0.0, 40.0), (_STEP_AT_S, 80.0))))
    storm = ProviderScript(storm=(_STEP_AT_S, _STEP_AT_S + _STORM_S))
    stormy = _play_change(contender, policy, seed, storm, more_s=_STORM_S)
    return {
        "table": "changes",
        "law": contender.name,
        "slots": policy,
        "seed": seed,
        "down_service_times": _follows_s(down, 18.0, 22.0) / storm.mean_s,
        "up_s": _reaches_s(up, 72),
        "storm_s": _recovers_s(stormy, _STEP_AT_S + _STORM_S, 0.9 * 40 / storm.mean_s),
        "lost": down.lost + up.lost + stormy.lost,
    }


_LOOK_S = 120.0
_WINDOW_S = 10.0


def _play_change(
    contender: Contender, policy: SlotPolicy, seed: int, provider: ProviderScript, more_s: float = 0.0
) -> LoadRecord:
    setting = Setting(seconds=_STEP_AT_S + more_s + _LOOK_S)
    return play(contender, provider, setting=setting, seed=seed, policy=policy)


def _moments() -> Iterator[float]:
    return (0.5 * step for step in range(int(2 * (_LOOK_S - _WINDOW_S))))


def _follows_s(record: LoadRecord, low: float, high: float) -> float:
    """Return the seconds after the step until the limit stays between two values: never above, on average not below."""
    for later in _moments():
        start = _STEP_AT_S + later
        highest, mean = record.limit_over(start, start + _WINDOW_S)
        if highest <= high and mean >= low:
            return later
    return _LOOK_S


def _reaches_s(record: LoadRecord, limit: int) -> float:
    """Return the seconds after the step until the limit reaches a value."""
    return next((at - _STEP_AT_S for at, new in record.limits if at >= _STEP_AT_S and new >= limit), _LOOK_S)


def _recovers_s(record: LoadRecord, since: float, per_s: float) -> float:
    """Return the seconds after `since` from which on answers arrive at `per_s` for ten seconds."""
    at = record.answered_at
    for later in _moments():
        start = since + later
        if bisect.bisect(at, start + _WINDOW_S) - bisect.bisect(at, start) >= per_s * _WINDOW_S:
            return later
    return _LOOK_S


# Providers that count per minute.

RATED: Final = ("S6", "S7", "S8", "S9")


def _rated_rules(case: RatedCase, most: int) -> dict[str, Callable[[MinuteBuckets], Rule]]:
    rules: dict[str, Callable[[MinuteBuckets], Rule]] = {
        OURS.name: lambda _: ControllerRule(AdaptiveLaw, most, stated_rates(case), heeds=True),
        "requests in flight only": lambda _: ControllerRule(AdaptiveLaw, most, UNLIMITED, heeds=False),
        INSPECT.name: lambda _: ControllerRule(InspectRule, most, UNLIMITED, heeds=False),
        "oracle": lambda buckets: RatedOracle(case, buckets),
    }
    if case.states or case.tells:
        rules["LiteLLM's router rule"] = lambda _: LiteLLMRule(case, most)
    return rules


def _rated(parameters: LimitParameters, seed: int) -> Iterator[dict[str, Any]]:
    for name in RATED:
        case = rated_case(name, parameters.rated_seconds)
        for law, make in _rated_rules(case, Setting().max_limit).items():
            for number in _seeds(seed, parameters.rated_seeds):
                record = play_rated(case, make, seed=number)
                yield {
                    "table": "rated",
                    "case": name,
                    "law": law,
                    "seed": number,
                    "tokens": record.goodput,  # of the scarce unit, in answers
                    "refused": 100 * record.refused_share,
                    "unfair": 100 * record.unfairness,
                    "lost": record.lost,
                }


@dataclass(frozen=True, slots=True)
class _Routers:
    """The results of LiteLLM's real router, or why it was not run."""

    rows: list[dict[str, Any]]
    absent: dict[str, str]  # setup that was not run -> reason
    notes: list[str]

    def beside(self, case: str, figure: str) -> dict[str, float | str]:
        """Return its figures in a case."""
        laws = dict.fromkeys(row["law"] for row in self.rows if row["case"] == case)
        return {law: fmean(_values(self.rows, figure, case=case, law=law)) for law in laws} | self.absent


ROUTED: Final = ("S6", "S7", "S8")
"""Cases in which a limit is stated or reported, so that a router can be configured with it."""


def _routers(parameters: LimitParameters, seed: int) -> _Routers:
    """Return the results of LiteLLM's router in each of its setups, each in its own process."""
    python = litellm_router.python_of_litellm()
    if python is None:
        return _Routers([], {"LiteLLM's router": litellm_router.ABSENT}, [])
    routers = _Routers([], {}, [])

    def play(setup: litellm_router.RouterSetup) -> None:
        try:
            with litellm_router.litellm_process(python) as litellm:
                rows = list(_routed(litellm, setup, parameters, seed))
        except litellm_router.RouterFailedError as error:
            routers.absent[setup.name] = f"failed: {error}"
            return
        routers.rows.extend(rows)
        given_up = sum(row["given_up"] for row in rows)
        what = f"{setup.name} ({litellm.version}) over {parameters.router_seconds:g} s of {', '.join(ROUTED)}"
        routers.notes.append(f"{what}: it gave up {given_up} calls, which were made again.")

    with ThreadPoolExecutor(len(litellm_router.SETUPS)) as setups:
        list(setups.map(play, litellm_router.SETUPS))
    if routers.rows:
        routers.rows.extend(_rules_beside_routers(parameters, seed))
    return routers


def _routed(
    litellm: litellm_router.LiteLLM, setup: litellm_router.RouterSetup, parameters: LimitParameters, seed: int
) -> Iterator[dict[str, Any]]:
    for name in ROUTED:
        case = rated_case(name, parameters.router_seconds)
        for number in _seeds(seed, parameters.router_seeds):
            played = litellm.play(setup, case, seed=number)
            yield _routed_row(name, case, setup.name, number, played.record) | {"given_up": played.given_up}


def _rules_beside_routers(parameters: LimitParameters, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the results of our copy of the router's rule over the same time, which should resemble the routers'."""
    for name in ROUTED:
        case = rated_case(name, parameters.router_seconds)
        for number in _seeds(seed, parameters.router_seeds):
            record = play_rated(case, _rule_of(case), seed=number)
            yield _routed_row(name, case, "the rule as long", number, record)


def _rule_of(case: RatedCase) -> Callable[[MinuteBuckets], Rule]:
    return lambda _: LiteLLMRule(case, Setting().max_limit)


def _routed_row(name: str, case: RatedCase, law: str, seed: int, record: RatedRecord) -> dict[str, Any]:
    best = play_rated(case, partial(RatedOracle, case), seed=seed).goodput
    return {
        "table": "routers",
        "case": name,
        "law": law,
        "seed": seed,
        "tokens": 100 * record.goodput / max(1, best),
        "refused": 100 * record.refused_share,
        "unfair": 100 * record.unfairness,
        "lost": record.lost,
    }


def _rated_bars(rated: Sequence[dict[str, Any]], routers: _Routers, parameters: LimitParameters) -> Iterator[Bar]:
    def split(figure: str, case: str) -> tuple[float, dict[str, float | str]]:
        laws = dict.fromkeys(row["law"] for row in rated if row["case"] == case)
        found: dict[str, float | str] = {law: fmean(_values(rated, figure, case=case, law=law)) for law in laws}
        return float(found.pop(OURS.name)), found

    for case in RATED:
        ours, rivals = split("tokens", case)
        oracle = max(1.0, float(rivals.pop("oracle")))
        beside: dict[str, float | str] = {law: 100 * float(value) / oracle for law, value in rivals.items()}
        beside |= routers.beside(case, "tokens") if case in ROUTED else {}
        what = f"{case}: tokens, of what an oracle gets"
        yield at_least(f"P2.{case}", what, 100 * ours / oracle, parameters.bar_rated, "%", beside)
        ours, rivals = split("refused", case)
        rivals |= routers.beside(case, "refused") if case in ROUTED else {}
        what = f"{case}: attempts answered 429"
        yield at_most(f"P2.{case}.refused", what, ours, parameters.bar_rated_refused, "%", rivals)
    ours, rivals = split("unfair", "S7")
    what = "S7: distance of a group from its share of the scarce tokens"
    yield at_most("P2.S7.share", what, ours, parameters.bar_unfair, "%", rivals | routers.beside("S7", "unfair"))


# Bars, tables and charts.


def _values(samples: Sequence[dict[str, Any]], figure: str, **where: Any) -> list[float]:
    return [s[figure] for s in samples if all(s[name] == value for name, value in where.items())]


def _case_bars(samples: Sequence[dict[str, Any]], parameters: LimitParameters) -> Iterator[Bar]:
    def figures(figure: str, case: str) -> tuple[float, dict[str, float | str]]:
        ours = fmean(_values(samples, figure, table="bar", case=case, law=OURS.name))
        rivals = {r.name: fmean(_values(samples, figure, table="bar", case=case, law=r.name)) for r in RIVALS}
        return ours, dict(rivals)

    for case, bar in zip(CASES, parameters.bar_goodput, strict=True):
        ours, rivals = figures("goodput", case)
        yield at_least(f"P2.{case}", f"{case}: goodput of capacity", ours, bar, "%", rivals)
    for case, bar in zip(CASES, parameters.bar_refused, strict=False):
        ours, rivals = figures("refused", case)
        yield at_most(f"P2.{case}.refused", f"{case}: attempts answered 429", ours, bar, "%", rivals)
    ours, rivals = figures("p95", "S5")
    oracle = float(rivals["oracle"])
    beside: dict[str, float | str] = {name: float(value) / oracle for name, value in rivals.items()}
    what = "S5: 95th percentile of latency, relative to the oracle's"
    yield at_most("P2.S5.p95", what, ours / oracle, parameters.bar_p95, "×", beside)


def _change_bars(changes: Sequence[dict[str, Any]], parameters: LimitParameters) -> Iterator[Bar]:
    for name, figure, what, bar, unit in (
        ("P2.down", "down_service_times", "a cap cut to a quarter is followed", parameters.bar_down, "service times"),
        ("P2.up", "up_s", "90 % of a doubled cap is reached", parameters.bar_up_s, "s"),
        ("P2.storm", "storm_s", "90 % of capacity after 5 minutes of 429s", parameters.bar_storm_s, "s"),
    ):
        worst = max(_values(changes, figure, law=OURS.name))
        beside = {c.name: max(_values(changes, figure, law=c.name)) for c in (DATA_DESIGNER, INSPECT)}
        yield at_most(name, f"{what}, worst run", worst, bar, unit, beside)


def _lost_bar(samples: Sequence[dict[str, Any]], changes: Sequence[dict[str, Any]]) -> Bar:
    lost = sum(row["lost"] for row in (*samples, *changes) if row["law"] == OURS.name)
    return at_most("P2.lost", "requests lost in any run", lost, 0, "requests")


def _tables(samples: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    """Return the comparison of slot policies, and of our law in other settings."""
    rows: dict[str, Spread] = {}
    for table, case, law, slots in dict.fromkeys((s["table"], s["case"], s["law"], s["slots"]) for s in samples):
        is_compared = law in (OURS.name, DATA_DESIGNER.name)
        if table == "bar" and not is_compared:
            continue
        where = {"table": table, "case": case, "law": law, "slots": slots}
        title = f"{case}, {law}, slots {slots}" if table in ("bar", "slots") else f"{case}, {table}"
        rows[f"{title}: goodput %"] = spread_of(_values(samples, "goodput", **where))
        if case == "S5":
            rows[f"{title}: p95 ×"] = spread_of(_values(samples, "p95", **where))
        else:
            rows[f"{title}: 429 %"] = spread_of(_values(samples, "refused", **where))
    return rows


def _charts(samples: Sequence[dict[str, Any]], parameters: LimitParameters, seed: int) -> list[Chart]:
    names = [OURS.name, *(rival.name for rival in RIVALS)]
    goodput = {
        name: [(case, fmean(_values(samples, "goodput", table="bar", case=case, law=name))) for case in CASES]
        for name in names
    }
    setting = Setting(seconds=parameters.seconds)
    limits = {
        contender.name: _steps(
            play(contender, script("S2", setting), setting=setting, seed=seed, policy=contender.policy),
            parameters.seconds,
        )
        for contender in (OURS, DATA_DESIGNER, INSPECT, RIVALS[-1])
    }
    return [
        Chart("Goodput by case", "case", "% of capacity", "bars", goodput),
        Chart("The limit while the cap goes from 40 to 80 to 20 (S2)", "seconds", "limit", "lines", limits),
    ]


def _steps(record: LoadRecord, seconds: float) -> list[tuple[float | str, float]]:
    """Return the limit over time, with a point per second."""
    return [(float(at), record.limit_over(at, at + 1)[1]) for at in range(int(seconds))]


SCENARIO = Scenario(
    name="limit",
    quick=LimitParameters(),
    full=LimitParameters(rival_seeds=5, variants=("all",), rated_seeds=5, router_seconds=1_800.0),
    measure=measure,
)
