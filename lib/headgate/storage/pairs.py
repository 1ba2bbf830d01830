"""The pairs of a journal: sequence numbers and due times of each model in each environment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.core import record
from headgate.storage.journal_database import JournalDatabase


@record
class Opening:
    """A request to open one task.

    Attributes:
        due_at: wall time in seconds at which the task fell due.
        interval_s: spacing of dues; a due time less than half of it after the last one taken is the same due time.
        data_length: number of the environment's tasks, for the index.
        sequence: number assigned by the task's source; None takes the next number.
        slot_at: for a pair's first task, the due time that it uses up instead of `due_at`.
    """

    model: str
    environment: str
    due_at: float
    interval_s: float
    data_length: int
    weight: float = 1.0
    sequence: int | None = None
    stage: str = "sample"
    slot_at: float | None = None


@dataclass(frozen=True, slots=True)
class AlreadyTaken:
    """Another process of this journal has taken the due time."""

    model: str
    environment: str
    last_due: float | None


@dataclass(frozen=True, slots=True)
class PairRecord:
    """One model in one environment: the next sequence number and the due time last taken."""

    model: str
    environment: str
    next_sequence: int
    last_due: float | None


@dataclass(slots=True)
class _Pair:
    key: int
    next_sequence: int
    last_due: float | None


_MOST_KNOWN: Final = 100_000
"""Maximum cached pairs (20 MB): models come and go, and removals are not reported here."""


class PairBook:
    """Assigns sequence numbers. Owned by a journal; used inside its write transactions.

    Caches what was read or written, as long as the database reports that no other process has written since: a task
    then costs no query. Call `refresh` at the start of a transaction that assigns numbers, `save` at its end, `forget`
    after a rollback.
    """

    def __init__(self, db: JournalDatabase) -> None:
        self._db = db
        self._known: dict[tuple[str, str], _Pair] = {}
        self._changed: dict[int, _Pair] = {}
        self._is_known = False

    def refresh(self) -> bool:
        """Drop the cache if another process may have written; return whether it was dropped."""
        is_stale = self._db.claim() or not self._is_known or len(self._known) > _MOST_KNOWN
        if is_stale:
            self.forget()
            self._is_known = True
        return is_stale

    def look_up(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Load these pairs into the cache, creating new ones, all at once."""
        unknown = sorted({pair for pair in pairs if pair not in self._known})
        for model, environment, *row in self._db.each("pair", unknown):
            self._known[model, environment] = _Pair(*row)
        new = [pair for pair in unknown if pair not in self._known]
        for model, environment, key in self._db.each("new_pair", new):
            self._known[model, environment] = _Pair(key, 0, None)

    def forget(self) -> None:
        """Drop the cache."""
        self._known.clear()
        self._changed.clear()
        self._is_known = False

    def key(self, model: str, environment: str) -> int:
        """Return the number of a pair."""
        return self._pair(model, environment).key

    def take(self, opening: Opening) -> tuple[int, int] | AlreadyTaken:
        """Assign the next sequence number; return the pair's number and it, unless the due time was already taken."""
        pair = self._pair(opening.model, opening.environment)
        if pair.last_due is not None:
            is_first = opening.slot_at is not None
            if is_first or opening.due_at < pair.last_due + opening.interval_s / 2:
                return AlreadyTaken(opening.model, opening.environment, pair.last_due)
        sequence = pair.next_sequence
        pair.next_sequence += 1
        pair.last_due = opening.due_at if opening.slot_at is None else opening.slot_at
        self._changed[pair.key] = pair
        return pair.key, sequence

    def was_numbered(self, model: str, environment: str, sequence: int) -> bool:
        """Return whether a sequence number was assigned or noted before."""
        return sequence < self._pair(model, environment).next_sequence

    def note(self, opening: Opening, sequence: int) -> int:
        """Note a number assigned by the task's source; return the pair's number."""
        pair = self._pair(opening.model, opening.environment)
        pair.next_sequence = max(pair.next_sequence, sequence + 1)
        pair.last_due = opening.due_at
        self._changed[pair.key] = pair
        return pair.key

    def last_due(self, model: str, environment: str) -> float | None:
        """Return the due time last taken."""
        return self._pair(model, environment).last_due

    def save(self) -> None:
        """Write what has changed."""
        rows = [(pair.next_sequence, pair.last_due, pair.key) for pair in self._changed.values()]
        self._changed.clear()
        self._db.many("save_pair", rows)

    def raise_to(self, model: str, environment: str, next_sequence: int, last_due: float | None) -> None:
        """Advance a pair to the store's values, as far as those are ahead."""
        pair = self._pair(model, environment)
        pair.next_sequence = max(pair.next_sequence, next_sequence)
        pair.last_due = last_due if pair.last_due is None else pair.last_due
        self._changed[pair.key] = pair

    def records(self) -> list[PairRecord]:
        """Return every pair that ever had a due time or a number."""
        return [PairRecord(*row) for row in self._db.run("pairs")]

    def _pair(self, model: str, environment: str) -> _Pair:
        pair = self._known.get((model, environment))
        if pair is None:
            self.look_up([(model, environment)])
            pair = self._known[model, environment]
        return pair
