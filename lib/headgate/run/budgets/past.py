"""Past spending of models, by the minute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.core import NO_SPENDING, Spending

_HOUR_S: Final = 3_600.0
_EPISODE_HOURS: Final = 4
"""The longest duration expected of an episode."""

_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PastSpending:
    """The spending of one model within one minute.

    Attributes:
        at: seconds since the epoch, within that minute.
        tokens: prompt and completion tokens.
        cost_micro: cost in millionths, as far as it is known.
        samples: number of samples that ended in that minute.
    """

    model: str
    at: float
    tokens: int
    requests: int
    cost_micro: int
    samples: int


def by_minute(rows: Iterable[tuple[str, str, float, int, int, int, int | None]]) -> list[PastSpending]:
    """Return the spending of samples by model and minute, counting each sample once, in order of time.

    Args:
        rows: task, model, end, prompt tokens, completion tokens, attempts and cost of each sample.
    """
    sums: dict[tuple[int, str], list[int]] = {}
    known: set[str] = set()
    for task_id, model, at, prompt, completion, attempts, cost in rows:
        if task_id in known:
            continue
        known.add(task_id)
        total = sums.setdefault((int(at // _MINUTE_S), model), [0, 0, 0, 0])
        for place, amount in enumerate((prompt + completion, attempts, cost or 0, 1)):
            total[place] += amount
    return [PastSpending(model, minute * _MINUTE_S, *sums[minute, model]) for minute, model in sorted(sums)]


def beyond(
    stored: Iterable[tuple[float, Spending]], shared: Iterable[tuple[float, Spending]]
) -> list[tuple[float, Spending]]:
    """Return the spending that the store has and the journal lacks, which is that of other machines, in order of time.

    The store dates a sample's spending at its end, the journal request by request, so a sample is looked for in the
    hour of its end, in the hours before it that an episode may take, and in the next one. Spending that only the
    journal has (requests without a sample) may hide as much spending of other machines in those hours.

    Args:
        stored: the spending of samples, as (seconds since the epoch, spending) pairs.
        shared: the spending that the journal's processes reported, likewise.
    """
    known: dict[int, Spending] = {}
    for at, spent in shared:
        hour = int(at // _HOUR_S)
        known[hour] = known.get(hour, NO_SPENDING).plus(spent)
    unknown = []
    for at, spent in sorted(stored):
        rest = spent
        for hour in range(int(at // _HOUR_S) - _EPISODE_HOURS, int(at // _HOUR_S) + 2):
            left = known.get(hour, NO_SPENDING)
            known[hour] = left.less(rest)
            rest = rest.less(left)
        if rest != NO_SPENDING:
            unknown.append((at, rest))
    return unknown
