"""The controls of a campaign: settings and orders given while it ran, kept in its journal with author and reason."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headgate.core import utc_text
from headgate.core.errors import ControlChangedError, InvalidInputError, NotFoundError
from headgate.storage.journal_database import JournalDatabase

ControlValue: TypeAlias = bool | int | float | None
"""The value of a control; None where the settings and the roster apply."""

RECOUNT: Final = "recount"
"""Makes the runs of a journal count again what it and the store hold; written by the command that changed that."""

ORDERS: Final = ("retry", "drain", "withdraw", RECOUNT)
"""Verbs that are carried out once and set nothing."""

_PAST: Final = {
    "pause": "paused", "resume": "resumed", "set": "set", "retry": "retried", "drain": "drained",
    "withdraw": "withdrew", "undo": "undid", RECOUNT: "recounted",
}  # fmt: skip

KEPT_CHANGES: Final = 1_000
"""Older changes are forgotten, except those in force."""


@dataclass(frozen=True, slots=True)
class ControlOrder:
    """A requested change.

    Attributes:
        verb: `pause`, `resume`, `set`, `undo`, or one of `ORDERS`.
        model: the model whose samples it concerns, as NAME@REVISION; None for every model.
        environment: the environment of those samples; None for all. With neither, it concerns the whole run.
        what: the control; for one of `ORDERS`, the verb itself.
        value: the value to set.
        revision: refuse if the control was changed after this revision; for `undo`, the change to undo.
    """

    verb: str
    model: str | None = None
    environment: str | None = None
    what: str = ""
    value: ControlValue = None
    reason: str = ""
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class ControlChange:
    """One change of a control, or an order that was given; the revisions of a campaign count from 1."""

    revision: int
    verb: str
    model: str | None
    environment: str | None
    what: str
    before: ControlValue
    after: ControlValue
    by: str
    at: float
    reason: str

    @property
    def key(self) -> tuple[str | None, str | None, str]:
        """Its subject: changes with the same key replace each other."""
        return self.model, self.environment, self.what

    def pauses(self, model: str | None, environment: str | None) -> bool:
        """Return whether it pauses a model, an environment, or one in the other, if it is the latest of its key."""
        covers = self.model in {None, model} and self.environment in {None, environment}
        return covers and self.what == "paused" and bool(self.after)


class ControlBook:
    """Keeps the changes. Owned by a journal; methods that write are called inside a write transaction."""

    def __init__(self, db: JournalDatabase) -> None:
        self._db = db

    def revision(self) -> int:
        """Return the revision of the latest change, 0 before the first; cheap enough to be called each second."""
        return int(self._db.run("control_revision").fetchone()[0])

    def changes(self, since: int = 0) -> list[ControlChange]:
        """Return the changes after a revision, oldest first."""
        return [_change(row) for row in self._db.run("control_changes", {"since": since})]

    def latest(self) -> list[ControlChange]:
        """Return the latest change of each control, oldest first."""
        return [_change(row) for row in self._db.run("latest_controls")]

    def ordered(self, order: ControlOrder, by: str, now: float) -> tuple[ControlChange, bool]:
        """Return the change that an order makes, and True; or, if it changes nothing, the one in force, and False.

        Raises:
            ControlChangedError: if the control was changed first.
            NotFoundError: if the change to undo does not exist.
            InvalidInputError: if it cannot be undone.
        """
        latest = {change.key: change for change in self.latest()}
        model, environment, what, value = order.model, order.environment, order.what, order.value
        if order.verb == "undo":
            undone = self._undone(order.revision)
            model, environment, what, value = undone.model, undone.environment, undone.what, undone.before
        known = latest.get((model, environment, what))
        if known is not None and order.revision is not None and known.revision > order.revision:
            raise ControlChangedError(f"the control was changed meanwhile: {told(known)}")
        before = known.after if known is not None and what not in ORDERS else None
        change = ControlChange(
            self.revision() + 1, order.verb, model, environment, what, before, value, by, now, order.reason
        )
        if what in ORDERS or value != before:
            return change, True
        return known or change, False

    def _undone(self, revision: int | None) -> ControlChange:
        found = next((one for one in self.changes((revision or 0) - 1) if one.revision == revision), None)
        if found is None:
            raise NotFoundError(
                f"there is no change {revision}", next_step="`headgate controls` lists the changes with their numbers."
            )
        if found.what in ORDERS:
            step = "It has happened."
            if found.what == RECOUNT:
                step = "`headgate invalidate --undo` has samples count again, unless their tasks are taken again."
            raise InvalidInputError(f"change {revision} cannot be undone: {told(found)}", next_step=step)
        return found

    def add(self, change: ControlChange) -> None:
        """Store a change."""
        self._db.run("add_control", {
            "revision": change.revision, "verb": change.verb, "model": change.model or "",
            "environment": change.environment or "", "what": change.what, "before": json.dumps(change.before),
            "after": json.dumps(change.after), "by": change.by, "at": change.at, "reason": change.reason,
        })  # fmt: skip
        self._db.run("forget_controls", {"until": change.revision - KEPT_CHANGES})
        if change.verb == "retry":
            self._db.run("clear_pauses", {"model": change.model or ""})
        elif change.verb == "withdraw":
            subject = {"model": change.model or "", "environment": change.environment or ""}
            self._db.run("note_withdrawn", subject)


def subject_of(model: str | None, environment: str | None) -> str:
    """Return the subject of a control, in words."""
    if model is None:
        return "the whole run" if environment is None else f"environment {environment}"
    return f"model {model}" if environment is None else f"{model} in {environment}"


def change_words(change: ControlChange, *, is_done: bool = True) -> str:
    """Return what a change did, or would do, in words; for an undo, also what the undone change did."""
    of, before, after = subject_of(change.model, change.environment), *map(value_words, (change.before, change.after))
    undone = f"setting {change.what} of {of} to {before}: it is {after} again"
    if change.what == "paused":
        undone = f"pausing {of}: it is resumed" if change.before else f"resuming {of}: it is paused again"
    said = {
        "set": f"{change.what} of {of} from {before} to {after}",
        "undo": undone,
        "retry": f"{'every model' if change.model is None else of} at once",
        "withdraw": f"what {'was' if is_done else 'is'} queued of {of}",
        RECOUNT: f"the samples of {of}",
    }
    return f"{_PAST[change.verb] if is_done else f'would {change.verb}'} {said.get(change.verb, of)}"


def told(change: ControlChange) -> str:
    """Return a change in words: what changed, from what to what, by whom, and why."""
    because = f": {change.reason}" if change.reason else ""
    return f"{change_words(change)}, by {change.by} (change {change.revision}){because}"


def control_words(control: ControlChange) -> str:
    """Return a control in force in words: its value, by whom, since when, and why."""
    of = subject_of(control.model, control.environment)
    said = f"{of} is paused" if control.what == "paused" else f"{control.what} of {of} is {value_words(control.after)}"
    because = f": {control.reason}" if control.reason else ""
    return f"{said} by {control.by} since {utc_text(control.at, seconds=True)}{because}"


def value_of(text: str, what: str = "a value") -> float | None:
    """Return the value of a control from its text; None for `default`.

    Raises:
        InvalidInputError: it is not a number.
    """
    if (text := text.strip()).lower() == "default":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInputError(
            f"{what} must be a number, or `default` (got {text[:60]!r})", next_step="Write it as 0.5 or 8."
        )
    return int(value) if value == int(value) else value


def value_words(value: ControlValue) -> str:
    """Return the value of a control as users write it."""
    return "default" if value is None else "yes" if value is True else f"{value:.12g}"


def _change(row: Any) -> ControlChange:
    revision, verb, model, environment, what, before, after, by, at, reason = row
    return ControlChange(
        revision, verb, model or None, environment or None, what, json.loads(before), json.loads(after), by, at, reason
    )
