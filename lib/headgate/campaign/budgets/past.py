"""What models spent before, by the minute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PastSpending:
    """What one model spent within one minute.

    Attributes:
        at: seconds since the epoch, within that minute.
        requests: attempts that were sent.
        samples: that ended in it.
    """

    model: str
    at: float
    prompt_tokens: int
    completion_tokens: int
    requests: int
    samples: int


def by_minute(rows: Iterable[tuple[str, str, float, int, int, int]]) -> list[PastSpending]:
    """Return what samples took by model and minute, each sample once, in the order of time.

    Args:
        rows: task, model, end, prompt tokens, completion tokens and attempts of each sample.
    """
    sums: dict[tuple[int, str], list[int]] = {}
    known: set[str] = set()
    for task_id, model, at, prompt, completion, attempts in rows:
        if task_id in known:
            continue
        known.add(task_id)
        total = sums.setdefault((int(at // _MINUTE_S), model), [0, 0, 0, 0])
        for place, amount in enumerate((prompt, completion, attempts, 1)):
            total[place] += amount
    return [PastSpending(model, minute * _MINUTE_S, *sums[minute, model]) for minute, model in sorted(sums)]
