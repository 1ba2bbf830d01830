"""Where the beginnings of requests were computed last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

REMEMBERED: Final = 10_000


class Affinity:
    """Prefix -> worker, of the prefixes used last. Owned by one pool."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._workers: OrderedDict[int, str] = OrderedDict()

    def worker_of(self, prefixes: Sequence[int]) -> str | None:
        """Return the worker that has the longest of these prefixes; None when none has."""
        for prefix in reversed(prefixes):
            if (worker_id := self._workers.get(prefix)) is not None:
                return worker_id
        return None

    def note(self, prefixes: Sequence[int], worker_id: str) -> None:
        """Remember that a worker computes these prefixes."""
        for prefix in prefixes:
            self._workers[prefix] = worker_id
            self._workers.move_to_end(prefix)
        while len(self._workers) > self._remembered:
            self._workers.popitem(last=False)

    def forget(self, worker_id: str) -> None:
        """Forget what a worker had: its cache is flushed."""
        if self._workers:
            self._workers = OrderedDict((prefix, who) for prefix, who in self._workers.items() if who != worker_id)
