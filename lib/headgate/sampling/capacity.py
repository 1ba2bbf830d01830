"""The capacity check: can the available throughput deliver the demanded samples, and which limit binds first?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.core import DAY_S, Model


@dataclass(frozen=True, slots=True)
class CapacityLimit:
    """One limit: the samples per day that it can carry, and those that are demanded of it."""

    name: str
    demanded_per_day: float
    carries_per_day: float

    @property
    def load(self) -> float:
        """Demand as a share of what the limit carries; above 1 it binds."""
        return self.demanded_per_day / self.carries_per_day if self.carries_per_day else float("inf")


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """Demanded samples against throughput: daily_rate × models × environments / 86 400 <= throughput.

    Attributes:
        demanded_per_day: demand of all models and environments at their rates, without boost.
        boosted_per_day: the same while every model is boosted.
        limits: sorted by load, highest first; the first one binds.
        episode_s: mean seconds of an episode by environment, as given.
        is_measured: environment -> whether its `episode_s` comes from stored samples rather than an assumption.
        workers_needed: worker slots that the demand keeps busy on average (Little's law).
        outside_needed: workers outside the campaign that it keeps busy in addition.
    """

    demanded_per_day: float
    boosted_per_day: float
    limits: tuple[CapacityLimit, ...]
    episode_s: Mapping[str, float]
    is_measured: Mapping[str, bool]
    workers_needed: float
    outside_needed: float = 0.0

    @property
    def binding(self) -> CapacityLimit:
        """The limit with the highest load."""
        return self.limits[0]

    @property
    def fits(self) -> bool:
        """True when no limit has to carry more than it can."""
        return self.binding.load <= 1.0


def capacity_check(
    models: Sequence[Model],
    rates: Mapping[str, float],
    *,
    workers: int,
    boost: float,
    episode_s: Mapping[str, float],
    is_measured: Mapping[str, bool],
    further: Iterable[CapacityLimit] = (),
    outside: Collection[str] = (),
) -> CapacityCheck:
    """Return the daily demand compared with what the workers and each endpoint can carry.

    A model's `max_parallel` bounds what its endpoint carries; `episode_s` is the mean episode duration by environment;
    `further` are limits of other kinds, such as budgets. Environments in `outside` take no worker of the campaign.
    """
    per_model = sum(rates.values())
    seconds_per_model = sum(rate * episode_s[e] for e, rate in rates.items())
    mean_s = seconds_per_model / per_model if per_model else 1.0
    demanded = per_model * len(models)
    per_slot = DAY_S / mean_s if mean_s else float("inf")
    here = {name: rate for name, rate in rates.items() if name not in outside}
    busy = len(models) * sum(rate * episode_s[name] for name, rate in here.items()) / DAY_S
    carried = sum(here.values()) * len(models) * workers / busy if busy else float("inf")
    limits = [CapacityLimit("workers", sum(here.values()) * len(models), carried)]
    parallel: dict[str, int] = {}
    wanted: dict[str, float] = {}
    for model in models:
        limits.append(CapacityLimit(f"model {model.key}", per_model, model.max_parallel * per_slot))
        parallel[model.endpoint] = parallel.get(model.endpoint, 0) + model.max_parallel
        wanted[model.endpoint] = wanted.get(model.endpoint, 0.0) + per_model
    limits.extend(CapacityLimit(f"endpoint {url}", wanted[url], parallel[url] * per_slot) for url in parallel if url)
    limits.extend(further)
    ranked = tuple(sorted(limits, key=lambda limit: -limit.load))
    outside_busy = len(models) * seconds_per_model / DAY_S - busy
    return CapacityCheck(demanded, demanded * boost, ranked, dict(episode_s), dict(is_measured), busy, outside_busy)
