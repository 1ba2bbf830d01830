"""What models spent before, by the minute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.core import NO_SPENDING, Spending

_HOUR_S: Final = 3_600.0
_EPISODE_HOURS: Final = 4
"""The longest that an episode is expected to take."""

_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PastSpending:
    """What one model spent within one minute.

    Attributes:
        at: seconds since the epoch, within that minute.
        tokens: prompt and completion.
        cost_micro: as far as it is known.
        samples: that ended in it.
    """

    model: str
    at: float
    tokens: int
    requests: int
    cost_micro: int
    samples: int


def by_minute(rows: Iterable[tuple[str, str, float, int, int, int, int | None]]) -> list[PastSpending]:
    """Return what samples took by model and minute, each sample once, in the order of time.

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
    """Return what the store knows of and the journal does not: what other machines spent, in the order of time.

    A sample counts in the store when it has ended and in the journal request by request, so it is looked for in the
    hour of its end, those that an episode may take before it, and the next. What the journal alone knows of (requests
    without a sample) may hide as much that other machines spent in those hours.

    Args:
        stored: what samples took, as (seconds since the epoch, spending) pairs.
        shared: what the processes of the journal reported, likewise.
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
