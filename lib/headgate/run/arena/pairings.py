"""Which comparisons to ask for: the most informative ones, in the same order in every run."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from headgate.core import Model, unit_hash
from headgate.core.events import Event
from headgate.reports import ArenaComparison
from headgate.run.arena.answers import Answers
from headgate.run.arena.records import again, comparison_environment
from headgate.sampling import Demand
from headgate.statistics import bradley_terry, win_chance


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two models' answers to one task; the first model's key sorts before the second's."""

    environment: str
    index: int
    first: str
    second: str


def possible(answers: Answers) -> list[Pairing]:
    """Return every pair of answers that two models gave to the same task."""
    by_environment: dict[str, list[str]] = {}
    for environment, model in sorted(answers):
        by_environment.setdefault(environment, []).append(model)
    return [
        Pairing(environment, index, first, second)
        for environment, models in by_environment.items()
        for first, second in combinations(models, 2)
        for index in sorted(answers[environment, first].keys() & answers[environment, second].keys())
    ]


def chosen(
    pairings: Sequence[Pairing], there: Sequence[ArenaComparison], budget: int | None, *, seed: str
) -> list[Pairing]:
    """Return the comparisons to ask for, at most `budget` of those that do not exist yet; all of them when None.

    Each goes to the two models that it tells most about: if one beats the other with probability p by the ratings so
    far, and n comparisons of the two exist, one more reduces the variance by p (1 - p) / (n + 1). So models about
    which nothing is known come first, then those with close ratings. Each two models take tasks in their own order,
    drawn from the seed: ratings over many tasks are worth more than ratings over few.
    """
    done = {(c.environment, c.index, *sorted((c.first, c.second))) for c in there}
    open_ = [p for p in pairings if (p.environment, p.index, p.first, p.second) not in done]
    if budget is None or budget >= len(open_):
        return open_
    waiting: dict[tuple[str, str], list[Pairing]] = {}
    for pairing in sorted(open_, key=lambda p: unit_hash(seed, p.first, p.second, p.environment, str(p.index))):
        waiting.setdefault((pairing.first, pairing.second), []).append(pairing)
    return _taken(waiting, _worth(there), Counter((c.first, c.second) for c in there), budget, seed)


def _taken(
    waiting: Mapping[tuple[str, str], list[Pairing]],
    worth: Mapping[tuple[str, str], float],
    counts: Counter[tuple[str, str]],
    budget: int,
    seed: str,
) -> list[Pairing]:
    def place(pair: tuple[str, str]) -> tuple[float, float, tuple[str, str]]:
        return (-worth.get(pair, 0.25) / (counts[pair] + 1), unit_hash(seed, *pair), pair)

    heap = [place(pair) for pair in waiting]
    heapq.heapify(heap)
    taken: list[Pairing] = []
    while heap and len(taken) < budget:
        pair = heapq.heappop(heap)[2]
        taken.append(waiting[pair].pop())
        counts[pair] += 1
        if waiting[pair]:
            heapq.heappush(heap, place(pair))
    return taken


def _worth(there: Sequence[ArenaComparison]) -> dict[tuple[str, str], float]:
    """Return p (1 - p) for every two models that have any comparison."""
    models = sorted({model for c in there for model in (c.first, c.second)})
    place = {model: number for number, model in enumerate(models)}
    if not models:
        return {}
    made = bradley_terry(
        [place[c.first] for c in there],
        [place[c.second] for c in there],
        [c.score for c in there],
        [f"{c.environment}/{c.index}" for c in there],
        len(models),
    )
    chances = {
        (one, other): win_chance(made.rating[place[one]], made.rating[place[other]])
        for one, other in combinations(models, 2)
    }
    return {pair: chance * (1 - chance) for pair, chance in chances.items()}


_AT_ONCE: Final = 256


class PairingProvider:
    """Gives each pairing once. Implements `TaskProvider`; owned by one run."""

    def __init__(self, pairings: Sequence[Pairing], stage: str, failed: Mapping[Pairing, int]) -> None:
        """Prepare it.

        Args:
            pairings: those to ask for.
            stage: of the judge and rubric.
            failed: how many times a pairing was asked for without a verdict.
        """
        self._waiting = deque(pairings)
        self._stage = stage
        self._failed = failed

    def next_at(self, now: float) -> float | None:
        """Return `now` while there are pairings to give."""
        return now if self._waiting else None

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the next pairings, up to a few hundred."""
        taken = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        return [self._demand(pairing, now) for pairing in taken], ()

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Do nothing: the pairings are of models that have already answered."""

    def _demand(self, pairing: Pairing, now: float) -> Demand:
        return Demand(
            pairing.first,
            comparison_environment(pairing.environment, pairing.second),
            due_at=now,
            interval_s=0.0,
            sequence=pairing.index,
            stage=again(self._stage, self._failed.get(pairing, 0)),
        )
