"""Passing notices on without Prefect: a webhook, and a command."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import subprocess
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import httpx
import orjson

from headgate.core import Secret, masked, redacted
from headgate.telemetry.backlog import Backlog
from headgate.telemetry.notices import Notice

_log = logging.getLogger("headgate.telemetry")

ATTEMPTS: Final = 4
"""To post a notice: at once, and after 1, 4 and 16 s."""

_MOST_WAITING: Final = 100
_CLOSE_S: Final = 5.0
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how the standard marks one


class _Sender(Backlog[Notice]):
    """Passes notices on from a thread of its own, in order; what it cannot pass on is in the log."""

    def __init__(self, name: str, campaign: str, timeout_s: float) -> None:
        super().__init__(name, _MOST_WAITING, close_within_s=_CLOSE_S)
        self._campaign = campaign
        self._timeout_s = timeout_s
        self._thread.start()

    def __call__(self, notice: Notice) -> None:
        """Have a notice passed on."""
        self._put(notice)

    def _work(self) -> None:
        is_last = False
        while not is_last:
            notices, is_last = self._next(1)
            for notice in notices:
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
        try:
            ended = subprocess.run(  # noqa: S603 - the operator's own command; what comes from outside is its input
                self._argv,
                input=body,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it did not end within {self._timeout_s:g} s"
        said = ended.stderr.decode("utf-8", "replace").strip()[:300]
        return "" if ended.returncode == 0 else f"it ended with {ended.returncode}: {said}"


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
