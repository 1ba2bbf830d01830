"""Notices: the few events to report to people who are not watching, by webhook or command."""

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
"""Notices of one kind in a burst; then one per minute. Further ones are counted, and are in the log."""

_REFILL_S: Final = 60.0
_MOST_WAITING: Final = 1_000
_NEVER: Final = 0.0
_ALWAYS: Final = math.inf

PREFIX: Final = "headgate."


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to report.

    Attributes:
        kind: `headgate.model.paused`, `headgate.score.dropped`, ….
        subject: kind and name of its subject: `model/KEY`, `pair/KEY/ENVIRONMENT`, `run/CAMPAIGN`, `job/ID`.
        at: wall time, seconds since the epoch.
        fields: the event's fields, without secrets.
        text: the message; an empty one sends nothing and only ends another notice.
        again_before: report it again if it was last reported before this time; by default never while it lasts.
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
"""Sends a notice on; returns at once and never raises."""


class Told(Protocol):
    """Remembers what was reported and lasts, for all processes that could report it; a journal stores it."""

    async def claim(self, key: str, at: float, again_before: float) -> bool:
        """Return whether to report this now: it never was, or was last reported before `again_before`."""

    async def release(self, key: str) -> bool:
        """Return whether this had been reported; it has ended now."""

    async def lasting(self) -> Sequence[str]:
        """Return the keys of what was reported and has not ended."""


class Notices:
    """Turns events into notices and sends each one once, to every sender. A `Sink`.

    Owned by a run or a server, whose loop runs `keep`. It never blocks: at most a thousand notices wait, and senders
    return at once. A lasting condition (a pause, a budget, a stall) is remembered in `told`, which is a journal's where
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
        """Do nothing: there is nothing to flush beyond what `keep` sends."""

    async def keep(self, told: Told | None = None) -> None:
        """Send notices until cancelled; without `told`, only those that need not be remembered."""
        self._loop = asyncio.get_running_loop()
        lasting = await told.lasting() if told else ()
        self._paused |= {key.partition("/")[2] for key in lasting if key.startswith("model.paused ")}
        while True:
            await self.pass_on(told)
            self._wake.clear()
            await self._wake.wait()

    async def pass_on(self, told: Told | None = None) -> None:
        """Send the waiting notices; also called at the end of a run."""
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
        """Send an event's notice at once, if it need not be remembered; for callers without an event loop."""
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
    """Return the notice of an event, None if it has none."""
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
    """Return the notice of an operator's pause or resume, of a model or anything else; None for other changes."""
    if event.what != "paused":
        return None
    named = "/".join(name for name in (event.model, event.environment) if name)
    what = "model" if event.model and not event.environment else "pair" if event.model else "environment"
    subject = f"{what}/{named}" if named else f"run/{event.campaign}"
    because = f": {event.reason}" if event.reason else ""
    told = "is paused" if event.after else "is resumed"
    text = f"{named or event.campaign} {told} by {event.by}{because}"
    kind = "model.paused" if event.after else "model.resumed"
    return _made(kind, subject, text, event, at, ends="" if event.after else "model.paused")


def _stalled(event: events.RunStalled, at: float) -> Notice:
    text = f"{event.campaign} has accepted nothing for {event.idle_s / 60:.0f} minutes with {event.due} samples due: "
    return _made("run.stalled", f"run/{event.campaign}", text + event.reason, event, at)


def _settled(event: events.PairSettled, at: float) -> Notice:
    text = f"{event.model} has settled in {event.environment}: {event.mean:.3f} ({event.low:.3f} to {event.high:.3f})"
    return _made("pair.settled", f"pair/{event.model}/{event.environment}", text, event, at)


def _dropped(event: events.ScoreDropped, at: float) -> Notice:
    where = event.environment or "all environments"
    text = (
        f"{event.model} scores {event.after:.2f} in {where}, {event.before:.2f} before "
        f"({event.low:+.2f} to {event.high:+.2f}), since {utc_text(event.since)}"
    )
    subject = f"pair/{event.model}/{event.environment}" if event.environment else f"model/{event.model}"
    # A restarted run that finds the same drop again reports nothing new.
    return _made("score.dropped", subject, text, event, at, again_before=event.since)


def _drifted(event: events.EndpointDrifted, at: float) -> Notice:
    text = f"{event.model} is answered by {event.after}, and was by {event.before}"
    return _made("endpoint.drifted", f"model/{event.model}", text, event, at, again_before=at - DAY_S / 24)


def _died(event: events.JobDied, at: float) -> Notice:
    text = f"job {event.job_id} is dead after {event.attempts} attempts: {event.error}"
    return _made("job.died", f"job/{event.job_id}", text, event, at, again_before=_ALWAYS)


def _checkpoint(event: events.CheckpointRegressed | events.CheckpointFailed, at: float) -> Notice:
    if isinstance(event, events.CheckpointFailed):
        kind, text = "failed", f"{event.model} lacks scores: {event.error}"
    else:
        apart = f"{event.difference:+.3f} ({event.difference_low:+.3f} to {event.difference_high:+.3f})"
        kind, text = "regressed", f"{event.model} is worse than {event.against}, the best before it: {apart}"
    return _made(f"checkpoint.{kind}", f"model/{event.model}", text, event, at, again_before=_ALWAYS)


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
    events.CheckpointRegressed: _checkpoint,
    events.CheckpointFailed: _checkpoint,
}


ATTEMPTS: Final = 4
"""Attempts to post a notice: at once, and after 1, 4 and 16 s."""

_MOST_UNSENT: Final = 100
_CLOSE_S: Final = 5.0
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how the standard marks one


class _Sender(Backlog[Notice]):
    """Sends notices from its own thread, in order; those that it cannot send are in the log."""

    def __init__(self, name: str, campaign: str, timeout_s: float) -> None:
        super().__init__(name, _MOST_UNSENT, close_within_s=_CLOSE_S)
        self._campaign = campaign
        self._timeout_s = timeout_s
        self._thread.start()

    def __call__(self, notice: Notice) -> None:
        self._put(notice)

    def _work(self) -> None:
        for notice in iter(self._queue.get, None):
            # Texts of providers' errors are masked here once more: this leaves the machine.
            body = masked(orjson.dumps(notice.document(self._campaign)).decode()).encode()
            try:
                why = self._passed(notice, body)
            except Exception as error:  # noqa: BLE001 - the thread's boundary: reported, and the next one goes
                why = f"{type(error).__name__}: {error}"
            if why:
                self.failures[self.name] += 1
                _log.warning("notice %s was not passed on by the %s: %s", notice.kind, self.name, redacted(why))

    @abstractmethod
    def _passed(self, notice: Notice, body: bytes) -> str:
        """Send a notice; return why that failed, or an empty text."""


class Webhook(_Sender):
    """Posts notices as JSON, signed according to Standard Webhooks.

    A 2xx answer is a success, 408, 429 and 5xx are retried, and others are final. Redirects are not followed.
    """

    def __init__(self, url: str, secret: str, campaign: str, timeout_s: float) -> None:
        self._url = Secret(url)  # anyone who knows the URL of a chat's webhook can post there
        self._key = _key(secret)
        super().__init__("webhook", campaign, timeout_s)

    def _passed(self, notice: Notice, body: bytes) -> str:
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(4.0 ** (attempt - 1))
            headers = signed(body, notice.notice_id, int(time.time()), self._key)
            try:
                # Nothing of the answer but its status is read.
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
    """Runs a command for each notice, with the notice as JSON on its standard input; kills one that takes too long."""

    def __init__(self, argv: Sequence[str], campaign: str, timeout_s: float) -> None:
        self._argv = list(argv)
        super().__init__("command", campaign, timeout_s)

    def _passed(self, notice: Notice, body: bytes) -> str:  # noqa: ARG002 - the body is all that it needs
        with subprocess.Popen(  # noqa: S603 - the operator's own command; outside data is only its input
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the run only, and a killed script's children die with it
        ) as command:
            try:
                said = command.communicate(body, self._timeout_s)[1].decode("utf-8", "replace").strip()[:300]
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(command.pid, signal.SIGKILL)
                return f"it did not end within {self._timeout_s:g} s"
        return "" if command.returncode == 0 else f"it ended with {command.returncode}{f': {said}' if said else ''}"


def senders_of(url: str, secret: str, command: Sequence[str], campaign: str, timeout_s: float) -> list[_Sender]:
    """Return the senders in the settings; their owner closes each."""
    senders: list[_Sender] = []
    if url:
        senders.append(Webhook(url, secret, campaign, timeout_s))
    if command:
        senders.append(Command(command, campaign, timeout_s))
    return senders


def signed(body: bytes, message_id: str, timestamp: int, key: bytes) -> dict[str, str]:
    """Return the headers of a notice; without a key they have no signature."""
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
            pass  # a text that only begins like one
    return secret.encode()
