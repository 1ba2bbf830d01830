"""Notices: the few events that somebody is to be told of who does not look; and their way to a webhook or a command."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import math
import os
import signal
import subprocess
import time
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import httpx
import orjson

from headgate.core import DAY_S, Secret, events, masked, new_run_id, redacted, utc_text
from headgate.net.authority import Rate, TokenBuckets
from headgate.telemetry.backlog import Backlog
from headgate.telemetry.fields import event_fields, safe_text
from headgate.telemetry.stream import Handler, Recorded

_log = logging.getLogger("headgate.telemetry")

MOST_AT_ONCE: Final = 20
"""Notices of one kind in a burst; then one a minute. The others are counted, and stand in the log."""

_REFILL_S: Final = 60.0
_MOST_WAITING: Final = 1_000
_NEVER: Final = 0.0
_ALWAYS: Final = math.inf

PREFIX: Final = "headgate."


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to be told.

    Attributes:
        kind: `headgate.model.paused`, `headgate.score.dropped`, ….
        subject: kind and name of what it is about: `model/KEY`, `pair/KEY/ENVIRONMENT`, `run/CAMPAIGN`, `job/ID`.
        at: wall time, seconds since the epoch.
        fields: of the event, without secrets.
        text: what is told; without one it only ends another.
        again_before: it is told once more where it was last told before this time; never while it lasts by default.
        ends: kind of the notice about the same subject that this one ends, or empty.
    """

    kind: str
    subject: str
    text: str
    at: float
    fields: Mapping[str, Any]
    again_before: float = _NEVER
    ends: str = ""
    notice_id: str = field(default_factory=new_run_id)

    def document(self, campaign: str) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "id": self.notice_id,
            "type": PREFIX + self.kind,
            "time": self.at,
            "campaign": campaign,
            "subject": self.subject,
            "text": self.text,
            "data": dict(self.fields),
        }


Send = Callable[[Notice], None]
"""Passes a notice on; returns at once and never raises."""


class Told(Protocol):
    """What was told and lasts, for all processes that could tell the same; a journal keeps it."""

    async def claim(self, key: str, at: float, again_before: float) -> bool:
        """Return whether something is to be told now: it never was, or last before that time."""

    async def release(self, key: str) -> bool:
        """Return whether something had been told that has ended now."""

    async def lasting(self) -> Sequence[str]:
        """Return the keys of what was told and has not ended."""


class Notices:
    """Turns events into notices and passes each on once, to everybody who is to be told. A `Sink`.

    Owned by a run or a server, whose loop runs `keep`. It holds nothing up: at most a thousand notices wait, and who
    passes them on returns at once. What lasts (a pause, a budget, a stall) is remembered by `told`, a journal's where
    there is one, until it ends.
    """

    name = "Notices"

    def __init__(self, senders: Iterable[Send]) -> None:
        self._senders = list(senders)
        self._waiting: deque[Notice] = deque(maxlen=_MOST_WAITING)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._paused: set[str] = set()
        self._rooms = TokenBuckets(Rate(1.0 / _REFILL_S, MOST_AT_ONCE))
        self._left_out: Counter[str] = Counter()
        self.handlers: Mapping[type[events.Event], Handler] = {
            **dict.fromkeys(_MADE, self._take),
            events.SampleAccepted: self._sample,
        }

    def close(self) -> None:
        """Nothing is held that `keep` has not passed on."""

    async def keep(self, told: Told | None = None) -> None:
        """Pass notices on, until cancelled; without `told` only those that nothing is remembered of."""
        self._loop = asyncio.get_running_loop()
        lasting = await told.lasting() if told else ()
        self._paused |= {key.partition("/")[2] for key in lasting if key.startswith("model.paused ")}
        while True:
            await self.pass_on(told)
            self._wake.clear()
            await self._wake.wait()

    async def pass_on(self, told: Told | None = None) -> None:
        """Pass on what waits; also for the end of a run."""
        while self._waiting:
            notice = self._waiting.popleft()
            if notice.ends and not (told and await told.release(f"{notice.ends} {notice.subject}")):
                continue
            if not notice.text:
                continue
            is_remembered, key = not notice.ends and notice.again_before != _ALWAYS, f"{notice.kind} {notice.subject}"
            if is_remembered and not (told and await told.claim(key, notice.at, notice.again_before)):
                continue
            self._send(notice)

    def _send(self, notice: Notice) -> None:
        if self._rooms.take(notice.kind, notice.at):
            self._left_out[notice.kind] += 1
            if self._left_out[notice.kind] == 1:
                _log.warning("more than %d notices of one kind at once: further ones are counted only", MOST_AT_ONCE)
            return
        if left_out := self._left_out.pop(notice.kind, 0):
            notice = replace(notice, fields={**notice.fields, "left_out": left_out})
        for send in self._senders:
            send(notice)

    def tell(self, event: events.Event) -> None:
        """Pass on at once what an event makes, where nothing has to be remembered of it; for who has no loop."""
        if (notice := notice_of(event, time.time())) is not None:
            self._send(notice)

    def _take(self, recorded: Recorded[Any]) -> None:
        notice = notice_of(recorded.event, recorded.wall)
        if notice is None:
            return
        if isinstance(recorded.event, events.ModelPaused):
            self._paused.add(recorded.event.model)
        self._add(notice)

    def _sample(self, recorded: Recorded[events.SampleAccepted]) -> None:
        sample = recorded.event.sample
        if sample.model in self._paused and sample.is_scored:
            self._paused.discard(sample.model)
            text = f"{sample.model} is sampled again"
            fields = {"model": sample.model, "environment": sample.environment}
            self._add(
                Notice("model.resumed", f"model/{sample.model}", text, recorded.wall, fields, ends="model.paused")
            )

    def _add(self, notice: Notice) -> None:
        self._waiting.append(notice)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)


def notice_of(event: events.Event, at: float) -> Notice | None:
    """Return the notice that an event makes, None where it makes none."""
    made = _MADE.get(type(event))
    return None if made is None else made(event, at)


def _made(kind: str, subject: str, text: str, event: events.Event, at: float, **more: Any) -> Notice:
    return Notice(kind, subject, safe_text(text, limit_chars=500), at, event_fields(event), **more)


def _paused(event: events.ModelPaused, at: float) -> Notice:
    text = f"{event.model} is paused after {event.consecutive_errors} service errors in a row: {event.last_error}"
    return _made("model.paused", f"model/{event.model}", text, event, at)


def _unscored(event: events.ModelUnscored, at: float) -> Notice:
    text = f"{event.model} has no score for its last {event.samples} samples: {event.last_error}"
    return _made("model.unscored", f"model/{event.model}", text, event, at, again_before=at - DAY_S)


def _controlled(event: events.ControlChanged, at: float) -> Notice | None:
    """An operator's pause, and its end, of a model or of anything else; other changes tell nobody."""
    if event.what != "paused":
        return None
    named = "/".join(name for name in (event.model, event.environment) if name)
    what = "model" if event.model and not event.environment else "pair" if event.model else "environment"
    subject = f"{what}/{named}" if named else f"run/{event.campaign}"
    because = f": {event.reason}" if event.reason else ""
    told = "is paused" if event.after else "goes on"
    text = f"{named or event.campaign} {told} by {event.by}{because}"
    kind = "model.paused" if event.after else "model.resumed"
    return _made(kind, subject, text, event, at, ends="" if event.after else "model.paused")


def _stalled(event: events.RunStalled, at: float) -> Notice:
    text = f"{event.campaign} has accepted nothing for {event.idle_s / 60:.0f} minutes with {event.due} samples due: "
    return _made("run.stalled", f"run/{event.campaign}", text + event.reason, event, at)


def _settled(event: events.PairSettled, at: float) -> Notice:
    text = f"{event.model} is known in {event.environment}: {event.mean:.3f} ({event.low:.3f} to {event.high:.3f})"
    return _made("pair.settled", f"pair/{event.model}/{event.environment}", text, event, at)


def _dropped(event: events.ScoreDropped, at: float) -> Notice:
    where = event.environment or "all environments"
    text = (
        f"{event.model} scores {event.after:.2f} in {where}, {event.before:.2f} before "
        f"({event.low:+.2f} to {event.high:+.2f}), since {utc_text(event.since)}"
    )
    subject = f"pair/{event.model}/{event.environment}" if event.environment else f"model/{event.model}"
    # Who starts anew and finds the same drop once more tells of nothing new.
    return _made("score.dropped", subject, text, event, at, again_before=event.since)


def _drifted(event: events.EndpointDrifted, at: float) -> Notice:
    text = f"{event.model} is answered by {event.after}, and was by {event.before}"
    return _made("endpoint.drifted", f"model/{event.model}", text, event, at, again_before=at - DAY_S / 24)


def _died(event: events.JobDied, at: float) -> Notice:
    text = f"job {event.job_id} is dead after {event.attempts} attempts: {event.error}"
    return _made("job.died", f"job/{event.job_id}", text, event, at, again_before=_ALWAYS)


_MADE: Final[Mapping[type[events.Event], Callable[[Any, float], Notice | None]]] = {
    events.ModelPaused: _paused,
    events.ModelUnscored: _unscored,
    events.ControlChanged: _controlled,
    events.RunStalled: _stalled,
    events.RunMoved: lambda event, at: _made("run.moved", f"run/{event.campaign}", "", event, at, ends="run.stalled"),
    events.PairSettled: _settled,
    events.ScoreDropped: _dropped,
    events.EndpointDrifted: _drifted,
    events.DailyBudgetSpent: lambda event, at: _made(
        "budget.exhausted", f"model/{event.model}", event.reason, event, at
    ),
    events.DailyBudgetFreed: lambda event, at: _made(
        "budget.freed", f"model/{event.model}", "", event, at, ends="budget.exhausted"
    ),
    events.JobDied: _died,
}


ATTEMPTS: Final = 4
"""To post a notice: at once, and after 1, 4 and 16 s."""

_MOST_UNSENT: Final = 100
_CLOSE_S: Final = 5.0
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how the standard marks one


class _Sender(Backlog[Notice]):
    """Passes notices on from a thread of its own, in order; what it cannot pass on is in the log."""

    def __init__(self, name: str, campaign: str, timeout_s: float) -> None:
        super().__init__(name, _MOST_UNSENT, close_within_s=_CLOSE_S)
        self._campaign = campaign
        self._timeout_s = timeout_s
        self._thread.start()

    def __call__(self, notice: Notice) -> None:
        self._put(notice)

    def _work(self) -> None:
        for notice in iter(self._queue.get, None):
            # Whatever stood in an error of a provider is masked here once more: this leaves the machine.
            body = masked(orjson.dumps(notice.document(self._campaign)).decode()).encode()
            try:
                why = self._passed(notice, body)
            except Exception as error:  # noqa: BLE001 - the boundary of the thread: reported, and the next one goes
                why = f"{type(error).__name__}: {error}"
            if why:
                self.failures[self.name] += 1
                _log.warning("notice %s was not passed on by the %s: %s", notice.kind, self.name, redacted(why))

    @abstractmethod
    def _passed(self, notice: Notice, body: bytes) -> str:
        """Pass a notice on; return why that was not possible, or nothing."""


class Webhook(_Sender):
    """Posts notices as JSON, signed as the Standard Webhooks are.

    An answer of 2xx is a success, 408, 429 and 5xx are tried again, and others are final. Redirects are not followed.
    """

    def __init__(self, url: str, secret: str, campaign: str, timeout_s: float) -> None:
        self._url = Secret(url)  # who knows the address of a chat's webhook can write there
        self._key = _key(secret)
        super().__init__("webhook", campaign, timeout_s)

    def _passed(self, notice: Notice, body: bytes) -> str:
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(4.0 ** (attempt - 1))
            headers = signed(body, notice.notice_id, int(time.time()), self._key)
            try:
                # What it answers beside the status is not read.
                with httpx.stream(
                    "POST", self._url.reveal(), content=body, headers=headers, timeout=self._timeout_s
                ) as answer:
                    status = answer.status_code
            except httpx.HTTPError as error:
                why = f"{type(error).__name__}: {error}"
                continue
            if 200 <= status < 300:
                return ""
            why = f"it was answered {status}"
            if status not in {408, 429} and status < 500:
                break
        return why


class Command(_Sender):
    """Runs a command for each notice, with the notice as JSON on its input; one that takes too long is killed."""

    def __init__(self, argv: Sequence[str], campaign: str, timeout_s: float) -> None:
        self._argv = list(argv)
        super().__init__("command", campaign, timeout_s)

    def _passed(self, notice: Notice, body: bytes) -> str:  # noqa: ARG002 - it has no use for more than the text
        with subprocess.Popen(  # noqa: S603 - the operator's own command; what comes from outside is its input
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the run, and what a script has started is killed with it
        ) as command:
            try:
                said = command.communicate(body, self._timeout_s)[1].decode("utf-8", "replace").strip()[:300]
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(command.pid, signal.SIGKILL)
                return f"it did not end within {self._timeout_s:g} s"
        return "" if command.returncode == 0 else f"it ended with {command.returncode}{f': {said}' if said else ''}"


def senders_of(url: str, secret: str, command: Sequence[str], campaign: str, timeout_s: float) -> list[_Sender]:
    """Return who passes notices on, as the settings say; each is closed by its owner."""
    senders: list[_Sender] = []
    if url:
        senders.append(Webhook(url, secret, campaign, timeout_s))
    if command:
        senders.append(Command(command, campaign, timeout_s))
    return senders


def signed(body: bytes, message_id: str, timestamp: int, key: bytes) -> dict[str, str]:
    """Return the headers of a notice; without a key they hold no signature."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "headgate",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
    }
    if key:
        content = f"{message_id}.{timestamp}.".encode() + body
        digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        headers["webhook-signature"] = f"v1,{digest}"
    return headers


def _key(secret: str) -> bytes:
    if secret.startswith(_SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
        except binascii.Error:
            pass  # a text that begins like one
    return secret.encode()
