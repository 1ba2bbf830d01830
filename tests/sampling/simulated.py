"""A day of one model without an event loop: ask when, go there, take what is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.core.events import Event
from headgate.sampling import Demand, ModelSampler, PairHistory, SamplingRules
from tests.sampling.table import DAY_S, HOUR_S, MODELS, NOW, RATES


def history(rates: Mapping[str, float], multiplier: float, now: float, *, scale: float = 1.0) -> dict[str, PairHistory]:
    """The 24 h before `now` of a model that was sampled at its rates, times `scale` in the counts."""
    past = {}
    for place, (environment, rate) in enumerate(rates.items()):
        interval = DAY_S / (rate * multiplier)
        last = now - interval * (place + 0.5) / len(rates)
        times = [last - n * interval for n in range(int(rate * multiplier)) if last - n * interval > now - DAY_S]
        past[environment] = PairHistory(tuple((at, 1) for at in times[: int(len(times) * scale)]), last)
    return past


@dataclass
class Day:
    """One sampler with a script of what happens to its samples; every demand with the time at which it came."""

    sampler: ModelSampler
    now: float = NOW
    is_answered: bool = True
    taken: list[tuple[float, Demand]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def run(self, until: float, *, lateness: Callable[[int], float] = lambda n: 0.0) -> Day:
        """Ask the sampler whenever it wants to be asked, each time a little late."""
        while (at := self.sampler.next_at(self.now)) is not None and at <= until:
            self.now = max(self.now, at) + lateness(len(self.taken))
            demand, events = self.sampler.due(self.now)
            self.sampler.validate()
            self.events += events
            for one in demand:
                self.taken.append((self.now, one))
                if self.is_answered:
                    self.sampler.scored(one.environment, self.now)
        self.now = until
        return self

    def counts(self, begin: float = NOW, end: float = float("inf")) -> Counter[str]:
        """Samples by environment in [begin, end)."""
        return Counter(one.environment for at, one in self.taken if begin <= at < end)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def remembered(self) -> dict[str, PairHistory]:
        """What the journal knows: counts by the minute, and the due time last taken."""
        past: dict[str, PairHistory] = {}
        for environment in self.sampler.environments:
            times = Counter(at // 60 * 60 for at, one in self.taken if one.environment == environment)
            dues = [one.due_at for _, one in self.taken if one.environment == environment]
            past[environment] = PairHistory(tuple(sorted(times.items())), dues[-1] if dues else None)
        return past


def day(
    rates: Mapping[str, float] = RATES,
    *,
    rules: SamplingRules | None = None,
    past: Mapping[str, PairHistory] | None = None,
    ordinal: int = 0,
    now: float = NOW,
) -> Day:
    """A sampler at the beginning of its day."""
    return Day(
        ModelSampler(MODELS[ordinal], rates, rules or SamplingRules(), ordinal=ordinal, now=now, history=past), now
    )


def most_in_any_window(times: Sequence[float], window_s: float) -> int:
    """The largest number of times that any window of this width holds."""
    ordered, begin, most = sorted(times), 0, 0
    for end, at in enumerate(ordered):
        while ordered[begin] <= at - window_s:
            begin += 1
        most = max(most, end - begin + 1)
    return most


__all__ = ["DAY_S", "HOUR_S", "NOW", "RATES", "Day", "day", "history", "most_in_any_window"]
