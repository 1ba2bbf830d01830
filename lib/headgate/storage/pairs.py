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
        due_at: when the task fell due; wall seconds.
        interval_s: spacing of dues; a due time less than half of it after the last one taken is the same due time.
        data_length: tasks of the environment, for the index.
        sequence: when the source of the task counts itself; None takes the next number.
        slot_at: for the first task of a pair, the due time that it takes in place of `due_at`.
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
"""Pairs that are remembered, 20 MB: models come and go, and nobody says which are gone."""


class PairBook:
    """Gives out sequence numbers. Owned by a journal; used inside of its write transactions.

    What was read or written last is remembered, and trusted as long as the database says that no other process has
    changed it since: a task then costs no query. `refresh` begins a transaction that gives numbers, `save` ends it,
    `forget` follows a rollback.
    """

    def __init__(self, db: JournalDatabase) -> None:
        self._db = db
        self._known: dict[tuple[str, str], _Pair] = {}
        self._changed: dict[int, _Pair] = {}
        self._is_known = False

    def refresh(self) -> bool:
        """Forget what another process may have changed; return whether one has written."""
        is_stale = self._db.claim() or not self._is_known or len(self._known) > _MOST_KNOWN
        if is_stale:
            self.forget()
            self._is_known = True
        return is_stale

    def look_up(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Read what is needed of these pairs, and make those that are new, all at once."""
        unknown = sorted({pair for pair in pairs if pair not in self._known})
        for model, environment, *row in self._db.each("pair", unknown):
            self._known[model, environment] = _Pair(*row)
        new = [pair for pair in unknown if pair not in self._known]
        for model, environment, key in self._db.each("new_pair", new):
            self._known[model, environment] = _Pair(key, 0, None)

    def forget(self) -> None:
        """Forget everything that is remembered."""
        self._known.clear()
        self._changed.clear()
        self._is_known = False

    def key(self, model: str, environment: str) -> int:
        """Return the number of a pair."""
        return self._pair(model, environment).key

    def take(self, opening: Opening) -> tuple[int, int] | AlreadyTaken:
        """Return the pair's number and its next sequence number, unless the due time was taken before."""
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
        """Return whether a sequence number was given out or noted before."""
        return sequence < self._pair(model, environment).next_sequence

    def note(self, opening: Opening, sequence: int) -> int:
        """Note a number that the source of the task counts; return the pair's number."""
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
        """Take over what the store knows of a pair, as far as it is ahead."""
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
