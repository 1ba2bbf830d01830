"""The simulated day: counts per model and environment, spread, boost and restart, in virtual time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.config import Settings
from headgate.core import DAY_S, Sample
from headgate.core.events import BoostChanged, Event
from headgate.run import Run, RunPlan
from headgate.sampling import NEW_PAIRS_PER_S, StaticRoster
from headgate.simulation import (
    EPOCH,
    LoopClock,
    MemoryStore,
    ScriptedChats,
    ServiceTime,
    free_environments,
    run_virtual,
)
from headgate_bench.artifact import at_most
from headgate_bench.definition import Bench, Outcome, Scenario
from headgate_bench.echo_environment import fleet

SEED_RATES: Final[Mapping[str, float]] = {
    "affine:sat": 100.0,
    "affine:abd": 100.0,
    "affine:ded": 100.0,
    "agentgym:webshop": 100.0,
    "agentgym:textcraft": 100.0,
    "agentgym:babyai": 120.0,
    "agentgym:alfworld": 80.0,
    "agentgym:sciworld": 80.0,
}
"""Samples per model per day in Affine's eight environments."""

_WORKERS: Final = 512


@dataclass(frozen=True, slots=True)
class DayParameters:
    """Parameters of the scenario."""

    models: int = 20  # models of the roster
    restart_at_s: float = 40_000.0  # time at which the interrupted day's campaign is stopped and restarted
    compared_s: float = 10_800.0  # length of the two runs with the same seed that are compared sample by sample
    service_s: float = 20.0  # mean service time of the models (log-normal, cv 0.5)
    boost_below: int = 200  # samples per model and day below which its rates are tripled
    bar_off: int = 1  # maximum deviation from a daily rate, in samples of a model in one environment


class _Day:
    """One folder, one store and the events of the campaigns in them."""

    def __init__(self, parameters: DayParameters, folder: Path, seed: int) -> None:
        self._parameters = parameters
        self._folder = folder
        self._seed = seed
        self.store = MemoryStore()
        self.boosts: list[BoostChanged] = []

    def run(self, *, start_s: float = 0.0, end_s: float = DAY_S, boost_below: int = 0) -> None:
        """Run a campaign from `start_s` to `end_s` of the day."""

        async def main() -> None:
            clock = LoopClock(EPOCH + start_s)
            settings = Settings(
                campaign=f"day-{self._seed}",
                journal=self._folder,
                low_sample_threshold=boost_below,
                num_evaluation_workers=_WORKERS,
                batch_flush_interval=0.0,
                drain_timeout_s=600.0,
            )
            plan = RunPlan(
                settings=settings,
                roster=StaticRoster(fleet(self._parameters.models)),
                environments=free_environments(dict(SEED_RATES)),
                store=self.store,
                chats=ScriptedChats(clock, service=ServiceTime(self._parameters.service_s, 0.5), seed=self._seed),
                duration_s=end_s - start_s,
            )
            await Run(plan, clock=clock, emit=self._note, inline=True).run()

        run_virtual(main())

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the stored samples by model and environment."""
        return Counter((s.model, s.environment) for s in self.store.samples)

    def fingerprint(self) -> str:
        """Return a digest of every sample in order, for comparing two runs."""
        digest = hashlib.sha256()
        for sample in self.store.samples:
            digest.update(f"{sample.task_id} {sample.started_at!r} {sample.score}\n".encode())
        return digest.hexdigest()[:16]

    def _note(self, event: Event) -> None:
        if isinstance(event, BoostChanged):
            self.boosts.append(event)


def measure(parameters: DayParameters, bench: Bench) -> Outcome:
    """Return how far a day's counts are off, with and without a restart, and the effect of the boost."""
    bench.progress(0.0, "a day without interruption")
    whole = _Day(parameters, bench.folder / "whole", bench.seed)
    whole.run()
    broken = _Day(parameters, bench.folder / "restarted", bench.seed)
    bench.progress(0.3, "a day with a restart")
    broken.run(end_s=parameters.restart_at_s)
    broken.run(start_s=parameters.restart_at_s)
    boosted = _Day(parameters, bench.folder / "boosted", bench.seed)
    bench.progress(0.6, "a day with the boost")
    boosted.run(boost_below=parameters.boost_below)
    bench.progress(0.9, "a morning, twice")
    mornings = [_Day(parameters, bench.folder / f"morning-{n}", bench.seed) for n in range(2)]
    for morning in mornings:
        morning.run(end_s=parameters.compared_s)

    new_s = parameters.models * len(SEED_RATES) / NEW_PAIRS_PER_S + 1
    first_s, herd, spread = _beginnings(whole.store.samples, new_s)
    changed = sum(whole.counts()[pair] != broken.counts()[pair] for pair in whole.counts() | broken.counts())
    off, boost_off, at_boost = _off(whole.counts()), _boost_off(boosted, parameters), _boost_ends(boosted, parameters)
    return Outcome(
        bars=[
            at_most(
                "day.counts",
                "samples that any model is off its daily rate in any environment",
                max(off.values()),
                parameters.bar_off,
                "samples",
                {f"off in {e.partition(':')[2]}": n for e, n in off.items()},
            ),
            at_most("day.first", "time until every model has begun a sample in every environment", first_s, new_s, "s"),
            at_most("day.herd", "most samples that begin in one second", herd, 2 * NEW_PAIRS_PER_S, "samples"),
            at_most("day.spread", "the same after the first samples", spread, 5, "samples"),
            at_most("day.restart", "counts that a restart in the middle changed", changed, 0, "counts"),
            at_most("day.doubled", "tasks sampled twice over the restart", _doubled(broken.store.samples), 0, "tasks"),
            at_most(
                "day.boost",
                f"samples that any model is off what three times the rate until {parameters.boost_below} samples gives",
                boost_off,
                2 * len(SEED_RATES),
                "samples",
            ),
            at_most(
                "day.boost_ends",
                "samples at which any boost ended, off the threshold",
                at_boost,
                len(SEED_RATES),
                "samples",
            ),
            at_most(
                "day.same_seed",
                "runs with the same seed that differ",
                len({morning.fingerprint() for morning in mornings}) - 1,
                0,
                "runs",
            ),
        ],
        samples=[
            _summary("whole", whole),
            _summary("restarted", broken),
            _summary("boosted", boosted),
            *(_summary("morning", morning) for morning in mornings),
        ],
        notes=["Virtual time: every figure is exact and the same on every machine for the same seed."],
    )


def _summary(name: str, day: _Day) -> dict[str, Any]:
    by_environment: dict[str, dict[str, int]] = {}
    for environment in SEED_RATES:
        counts = [n for (_, e), n in day.counts().items() if e == environment]
        by_environment[environment] = {"lowest": min(counts, default=0), "highest": max(counts, default=0)}
    return {
        "run": name,
        "samples": len(day.store.samples),
        "by_environment": by_environment,
        "boosts_ended": len(day.boosts),
        "fingerprint": day.fingerprint(),
    }


def _off(counts: Counter[tuple[str, str]]) -> dict[str, int]:
    """Return the largest deviation from the daily rate, by environment."""
    models = {model for model, _ in counts}
    return {
        environment: max(abs(counts[model, environment] - round(rate)) for model in models)
        for environment, rate in SEED_RATES.items()
    }


def _beginnings(samples: Sequence[Sample], new_s: float) -> tuple[float, int, int]:
    """Return when the last pair begins, and the maximum of samples begun per second: at any time, and after `new_s`."""
    first: dict[tuple[str, str], float] = {}
    seconds = Counter[int]()
    for sample in samples:
        pair, at = (sample.model, sample.environment), sample.started_at - EPOCH
        first[pair] = min(first.get(pair, at), at)
        seconds[int(at)] += 1
    return max(first.values()), max(seconds.values()), max(n for at, n in seconds.items() if at > new_s)


def _doubled(samples: Sequence[Sample]) -> int:
    return sum(n - 1 for n in Counter(sample.task_id for sample in samples).values())


def _boost_off(day: _Day, parameters: DayParameters) -> float:
    per_day = sum(SEED_RATES.values())
    boosted_s = parameters.boost_below / (3 * per_day) * DAY_S
    expected = parameters.boost_below + per_day * (DAY_S - boosted_s) / DAY_S
    totals = Counter(sample.model for sample in day.store.samples)
    return max(abs(total - expected) for total in totals.values())


def _boost_ends(day: _Day, parameters: DayParameters) -> float:
    """Return the largest distance from the threshold at which a boost ended, in samples; all of it if one never did."""
    if len(day.boosts) != parameters.models:
        return float(parameters.boost_below)
    return float(max(abs(boost.samples_24h - parameters.boost_below) for boost in day.boosts))


SCENARIO = Scenario(
    name="day",
    quick=DayParameters(),
    full=DayParameters(models=95),
    measure=measure,
)
