"""Steering a run: which controls are in force, what users may order, and what carries it out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.core import Model, Task, TaskId, checked_text
from headgate.core.audit import record_change
from headgate.core.errors import InvalidInputError, JournalError, NotFoundError, did_you_mean
from headgate.core.events import ControlChanged
from headgate.run.dispatch import AGGREGATE, JUDGE, LOCAL_LANE, ROLLOUT, WORKERS
from headgate.storage import (
    JOURNAL_AWAY,
    ORDERS,
    RECOUNT,
    ControlChange,
    ControlOrder,
    ControlValue,
    change_words,
    control_words,
    subject_of,
    told,
    value_words,
)

if TYPE_CHECKING:
    from headgate.run.health import Health
    from headgate.run.membership import Membership
    from headgate.run.outside_workers import Executor
    from headgate.run.parts import Parts
    from headgate.run.settlement import Settling
    from headgate.run.stages import Stages
    from headgate.storage import Journal

_log = logging.getLogger("headgate.controls")

LOOK_EVERY_S: Final = 1.0
"""How often a run reads the revision of its controls, which other processes of its journal may have changed."""

LOOK_EVERY_SIMULATED_S: Final = 10.0
"""The same in simulated time, where thousands of seconds pass quickly and no user waits for them."""

LOGGED: Final = 100
DRAINED: Final = "drained"
"""Start of the stop reason of a run that was told to finish its samples in progress and end."""

VERBS: Final = ("pause", "resume", "set", *(verb for verb in ORDERS if verb != RECOUNT), "undo")
_REASON_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class _Rule:
    """The values that a control may have, and what it applies to."""

    unit: str
    subject: str
    least: float
    most: float
    is_whole: bool = False


CONTROLS: Final[Mapping[str, _Rule]] = {
    "rate": _Rule("samples per model and day", "an environment, or a model in one", 1e-3, 1e7),
    "factor": _Rule("times the rate", "anything", 1e-6, 1e6),
    "cap": _Rule("requests in flight", "a model", 1, 100_000, is_whole=True),
    "budget": _Rule("tokens in 24 h", "a model", 0, 1e15, is_whole=True),
    "workers": _Rule("episodes in progress at most", "the whole run", 1, 100_000, is_whole=True),
}
"""The controls that `set` sets."""


def order_of(document: Mapping[str, Any], models: Collection[str], environments: Collection[str]) -> ControlOrder:
    """Return a checked order.

    Args:
        document: the fields of a `ControlOrder`.
        models: keys of the campaign's models.
        environments: names of the campaign's environments.

    Raises:
        NotFoundError: if its model or environment does not exist.
        InvalidInputError: if it breaks another rule.
    """
    order = ControlOrder(**document)
    verb, model, environment = order.verb, order.model or None, order.environment or None
    if verb not in VERBS:
        raise InvalidInputError(f"there is no verb {verb[:60]!r}{did_you_mean(verb, VERBS, otherwise=_any_of(VERBS))}")
    if verb == "undo":
        if order.revision is None:
            raise InvalidInputError("undo takes the revision of a change", next_step="`headgate controls` lists them.")
        return replace(order, reason=_reason(order.reason))
    if model is not None:
        model = _known("model", model, models)
    if environment is not None:
        environment = _known("environment", environment, environments)
    what, value = ("paused", True if verb == "pause" else None) if verb != "set" else (order.what or "", order.value)
    if verb in ORDERS:
        what, value = verb, None
        if verb == "drain" and (model or environment):
            raise InvalidInputError("drain is for the whole run", next_step="Pause or withdraw a part of it.")
        if verb == "retry" and environment:
            raise InvalidInputError("retry is for a model, or for all", next_step="Leave the environment out.")
    elif verb == "set":
        value = _value(what, value, model, environment)
    return ControlOrder(verb, model, environment, what, value, _reason(order.reason), order.revision)


def settable(model: str | None, environment: str | None) -> dict[str, str]:
    """Return the controls of a model, an environment, one in the other, or (without both) the run: name -> in words."""
    fits = {
        "an environment, or a model in one": environment is not None,
        "a model": model is not None and environment is None,
        "the whole run": model is None and environment is None,
    }
    return {name: f"{name}, {one.unit}" for name, one in CONTROLS.items() if fits.get(one.subject, True)}


def _known(noun: str, name: str, known: Collection[str]) -> str:
    if name in known:
        return name
    if noun == "model" and len(same := [key for key in known if key.rpartition("@")[0] == name]) == 1:
        return same[0]
    raise NotFoundError(
        f"this campaign has no {noun} {name[:100]!r}{did_you_mean(name, known)}",
        next_step=f"`headgate {noun}s` lists what there is{'; a model is NAME or NAME@REVISION' * (noun == 'model')}.",
    )


def _value(what: str, value: ControlValue, model: str | None, environment: str | None) -> ControlValue:
    rule = CONTROLS.get(what)
    if rule is None:
        raise InvalidInputError(
            f"{what[:60]!r} cannot be set{did_you_mean(what, CONTROLS, otherwise=_any_of(CONTROLS))}"
        )
    possible = settable(model, environment)
    if what not in possible:
        named, got = "workers are" if what == "workers" else f"a {what} is", subject_of(model, environment)
        raise InvalidInputError(
            f"{named} set for {rule.subject} (got {got})",
            next_step=f"Name it with --model and --environment; {got} has the controls {', '.join(possible)}.",
        )
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not rule.least <= value <= rule.most or (rule.is_whole and value != int(value)):
        number, further = "a whole number" if rule.is_whole else "a number", "To stop samples, pause"
        if not is_number or value >= rule.least:
            further = f"Give {number}{f', such as {min(value, rule.most):.0f}' if is_number else ''}"
        raise InvalidInputError(
            f"{what} must be {number} from {rule.least:g} to {rule.most:g}, in {rule.unit} (got {value!r})",
            next_step=f"{further}; `default` is what the settings and the roster say.",
        )
    return int(value) if rule.is_whole else float(value)


def _reason(reason: str) -> str:
    try:
        reason = checked_text(reason.strip())
    except ValueError as error:
        raise InvalidInputError(f"a reason {error}") from None
    if len(reason) > _REASON_CHARS:
        raise InvalidInputError(f"a reason has {_REASON_CHARS} characters at most (got {len(reason)})")
    return reason


def _any_of(names: Collection[str]) -> str:
    return f"; there are {', '.join(names)}"


class Controls:
    """The controls in force. Pure; owned by a run, whose `Steering` keeps it in step with the journal."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str | None, str | None, str], ControlChange] = {}
        self.log: deque[ControlChange] = deque(maxlen=LOGGED)
        """The latest changes, oldest first."""
        self.revision = 0
        self.pauses = 0
        """Number of pauses in force; 0 skips every further check."""

    def put(self, change: ControlChange) -> None:
        """Add a change that is newer than all others."""
        self._latest[change.key] = change
        self.log.append(change)
        self.revision = max(self.revision, change.revision)
        self.pauses = sum(one.what == "paused" and bool(one.after) for one in self._latest.values())

    def in_force(self) -> list[ControlChange]:
        """Return the controls that are set, oldest first."""
        found = [one for one in self._latest.values() if one.after is not None and one.what not in ORDERS]
        return sorted(found, key=lambda one: one.revision)

    def pause_of(self, model: str | None, environment: str | None) -> ControlChange | None:
        """Return the pause of a model, an environment, or one in the other; the widest if there are several."""
        for subject in dict.fromkeys(((None, None), (model, None), (None, environment), (model, environment))):
            change = self._latest.get((*subject, "paused"))
            if change is not None and change.after:
                return change
        return None

    def is_aside(self, task: Task) -> bool:
        """Return whether a task must not start: a sample of a paused subject, or a question to a paused judge.

        A sample in progress still gets what it needs from other models.
        """
        if task.stage == AGGREGATE:
            return False
        if task.stage.startswith(f"{JUDGE}.") and task.depends_on:
            return bool(self._value(task.model, None, "paused"))
        return self.pause_of(task.model, task.environment) is not None

    def sampling(self, model: str, rates: Mapping[str, float]) -> tuple[dict[str, float], frozenset[str]]:
        """Return a model's rates by environment, from the configured ones, and the environments where it is paused."""
        steered = {environment: self._rate(model, environment, rate) for environment, rate in rates.items()}
        return steered, frozenset(e for e in rates if self.pause_of(model, e)) if self.pauses else frozenset()

    def _rate(self, model: str, environment: str, configured: float) -> float:
        rate = self._value(model, environment, "rate") or self._value(None, environment, "rate") or configured
        for subject in ((None, None), (model, None), (None, environment), (model, environment)):
            rate *= self._value(subject[0], subject[1], "factor") or 1.0
        return float(rate)

    def model_of(self, model: Model) -> Model:
        """Return a roster model with the cap and the budget in force."""
        cap, budget = self._value(model.key, None, "cap"), self._value(model.key, None, "budget")
        if cap is not None:
            model = replace(model, max_parallel=int(cap))
        if budget is not None:
            model = replace(model, budget=replace(model.budget, daily_tokens=int(budget)))
        return model

    def workers(self, configured: int) -> int:
        """Return the number of workers in force."""
        return int(self._value(None, None, "workers") or configured)

    def document(self) -> dict[str, Any]:
        """Return the body of `GET /controls`."""
        names = ("model", "environment", "what", "by", "at", "reason", "revision")
        controls = [
            {name: getattr(one, name) for name in names} | {"value": one.after, "says": control_words(one)}
            for one in self.in_force()
        ]
        log = [asdict(one) | {"says": told(one)} for one in reversed(self.log)]
        return {"controls": controls, "log": log, "revision": self.revision}

    def _value(self, model: str | None, environment: str | None, what: str) -> ControlValue:
        change = self._latest.get((model, environment, what))
        return None if change is None else change.after


def order_words(change: ControlChange, *, is_new: bool, dry_run: bool, further: str = "") -> str:
    """Return what an order did, or would do, as a sentence without the full stop."""
    if not is_new:
        of = subject_of(change.model, change.environment)
        is_unset = f"{of} is not paused" if change.what == "paused" else f"{change.what} of {of} is default"
        return f"nothing to do: {is_unset if change.after is None else control_words(change)}"
    return change_words(change, is_done=not dry_run) + further


@dataclass(slots=True, eq=False)
class Steering:
    """Carries out orders, and keeps the controls in step with the journal's. Owned by a run.

    A change is durable before it takes effect. Whoever writes it (this run for a request, another process, a command),
    every run of the journal reads it there and carries it out once.

    Attributes:
        rates: the configured rates.
        held: returns the tasks whose requests are in batches, by id.
        stop: drains the run; called with the reason.
        recount: makes the run count again what its journal and its store hold.
    """

    parts: Parts
    membership: Membership
    stages: Stages
    health: Health
    settling: Settling
    outside: Executor | None
    rates: Mapping[str, float]
    held: Callable[[], Mapping[TaskId, Task]]
    stop: Callable[[str], None]
    recount: Callable[[], Awaitable[None]]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # changes are carried out once, in order

    async def load(self) -> None:
        """Apply the controls set before this run; earlier one-time orders have been carried out, or are over."""
        parts = self.parts
        parts.controls = await parts.journal.call(controls_of, parts.journal.journal)
        for control in parts.controls.in_force():
            _log.warning("%s", control_words(control))
        if parts.controls.revision:
            self._enforce()

    async def keep(self, every_s: float = LOOK_EVERY_S) -> None:
        """Apply the changes of other processes, until cancelled."""
        while True:
            await self.parts.clock.sleep(every_s)
            with contextlib.suppress(*JOURNAL_AWAY):
                await self.look()

    async def look(self) -> None:
        """Carry out the journal's new changes."""
        journal, controls = self.parts.journal, self.parts.controls
        async with self._turn:
            if await journal.call(journal.journal.controls.revision) == controls.revision:
                return
            changes = await journal.call(journal.journal.controls.changes, controls.revision)
            for change in changes:
                controls.put(change)
                await self._carry_out(change)
            self._enforce()

    def document(self) -> dict[str, Any]:
        """Return the body of `GET /controls`."""
        return self.parts.controls.document()

    async def steer(self, document: Mapping[str, Any], by: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Carry out an order; return the body of the answer to `POST /controls`.

        Raises:
            HeadgateError: if it cannot be carried out; then nothing has changed.
        """
        parts = self.parts
        models = {*parts.samplers, *parts.dispatcher.lanes} - {LOCAL_LANE}  # the judge included
        order = order_of(document, models, parts.environments)
        journal = parts.journal
        further = self._further(order)
        try:
            change, is_new = await journal.call(journal.journal.steer, order, by, parts.now(), dry_run=dry_run)
        except JOURNAL_AWAY as error:
            step = "The run goes on trying to write it; order this again then."
            said = f"the journal cannot be written at present, so nothing was changed: {error}"
            raise JournalError(said, next_step=step) from None
        if is_new and not dry_run:
            await journal.call(record, change)
            await self.look()
        said = order_words(change, is_new=is_new, dry_run=dry_run, further=further)
        still = parts.controls.pause_of(order.model, order.environment) if order.verb == "resume" else None
        if still is not None and (still.model, still.environment) != (order.model, order.environment):
            said += f"; but {control_words(still)}"
        return answer_of(said, change, dry_run=dry_run)

    def _further(self, order: ControlOrder) -> str:
        """Return what an order means for the samples in progress and in the queue."""
        if order.verb not in {"pause", "withdraw", "drain"}:
            return ""
        running, queued = (
            sum(order.model in (None, task.model) and order.environment in (None, task.environment) for task in tasks)
            for tasks in (self.stages.tasks, self._waiting())
        )
        kept = {"pause": "wait", "withdraw": "are withdrawn", "drain": "stay in the journal"}[order.verb]
        return f": samples in progress ({running:,}) end, queued ones ({queued:,}) {kept}"

    def _waiting(self) -> list[Task]:
        parts, dispatcher = self.parts, self.parts.dispatcher
        ready = [*dispatcher.queue.items(), *dispatcher.aside.values(), *self.held().values()]
        unbegun = [task for task in ready if task.stage == ROLLOUT or self.stages.row_of(task.task_id) is None]
        return [*unbegun, *parts.batches.items(), *self.stages.waiting_tasks()]

    async def _carry_out(self, change: ControlChange) -> None:
        parts = self.parts
        values = (change.verb, change.model, change.environment, change.what, change.before, change.after)
        parts.emit(ControlChanged(parts.settings.campaign, *values, change.by, change.reason, change.revision))
        why = f"by {change.by}{f': {change.reason}' if change.reason else ''}"
        match change.what:
            case "drain":
                self.stop(f"{DRAINED} {why}")
            case "withdraw":
                pairs = [(m, e) for m in parts.samplers for e in parts.environments]
                chosen = [(m, e) for m, e in pairs if change.model in (None, m) and change.environment in (None, e)]
                self.settling.leave(dict.fromkeys(chosen, f"withdrawn {why}"))
            case "retry":
                for model in [key for key in parts.samplers if change.model in (None, key)]:
                    await self.health.retry(model, parts.now())
            case "recount":
                await self.recount()

    def _enforce(self) -> None:
        """Apply the controls to every part of the run."""
        parts, controls, now = self.parts, self.parts.controls, self.parts.now()
        parts.dispatcher.set_aside(controls.is_aside if controls.pauses else None, now)
        if controls.pauses and self.outside is not None:
            self.outside.withdraw("it is paused", controls.is_aside, wait_s=0.0)
        self.membership.steered()
        for key, sampler in parts.samplers.items():
            sampler.steer(*controls.sampling(key, self.rates), now)
        parts.local.touch(parts.samplers, now)
        workers = controls.workers(parts.settings.num_evaluation_workers)
        if parts.dispatcher.book.limits[WORKERS] != workers:
            parts.dispatcher.set_limit(WORKERS, workers)
            self.stages.figures.resize(workers, now)
        self.stages.wake()
        parts.wake.set()


def record(change: ControlChange) -> None:
    """Write a change to the audit trail."""
    subject = subject_of(change.model, change.environment)
    what = "" if change.what in ORDERS else f" {change.what}"
    after = f"{value_words(change.after)} {change.reason}".strip() if what else change.reason
    record_change(
        f"controls {change.verb}{what}", subject, before=value_words(change.before), after=after, who=change.by
    )


def answer_of(said: str, change: ControlChange, *, dry_run: bool) -> dict[str, Any]:
    """Return the body of the answer to `POST /controls`."""
    values = {"before": change.before, "after": change.after, "revision": change.revision, "dry_run": dry_run}
    return {"would" if dry_run else "did": said, **values}


def steer_at_rest(
    journal: Journal,
    document: Mapping[str, Any],
    *,
    models: Collection[str],
    environments: Collection[str],
    by: str,
    now: float,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Write an order to a journal, for the runs that use it and later ones; return what `Steering.steer` returns.

    Args:
        journal: the campaign's journal.
        document: the fields of a `ControlOrder`.
        models: keys of the roster's models; those in the journal are added.
        environments: names of the installed environments; likewise.
        by: who gives the order.
        now: wall time in seconds.
        dry_run: change nothing.

    Raises:
        HeadgateError: if it cannot be carried out; then nothing has changed.
    """
    pairs = journal.history(now).pairs
    order = order_of(document, {*models, *(m for m, _ in pairs)}, {*environments, *(e for _, e in pairs)})
    change, is_new = journal.steer(order, by, now, dry_run=dry_run)
    if is_new and not dry_run:
        record(change)
    return answer_of(order_words(change, is_new=is_new, dry_run=dry_run), change, dry_run=dry_run)


def controls_of(journal: Journal) -> Controls:
    """Return the controls in a journal."""
    controls = Controls()
    for change in journal.controls.changes():
        controls.put(change)
    return controls
