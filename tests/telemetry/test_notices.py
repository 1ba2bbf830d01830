"""Notices: each told once, by webhook and command, whatever happens at the other end."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headgate.core import Secret, events
from headgate.run.learning import ToldNotices
from headgate.storage import Journal, JournalThread
from headgate.telemetry import EventStream, Notice, Notices, senders_of
from tests.telemetry.factories import START, FixedClock, sample

MODEL = "acme/small@main"
PAUSED = events.ModelPaused(MODEL, 0, 900.0, 3, 1, "HTTP 500")
SPENT = events.DailyBudgetSpent(MODEL, "daily_tokens", 9.0, 10.0, None, f"{MODEL} has used 9 of 10 tokens of 24 h")
DROPPED = events.ScoreDropped(MODEL, "affine:sat", 0.8, 0.6, -0.3, -0.1, START - 60, 40)
DRIFTED = events.EndpointDrifted(MODEL, "small fp_1", "small fp_2")
SETTLED = events.PairSettled(MODEL, "affine:sat", 40, 0.5, 0.45, 0.55)
STALLED = events.RunStalled("main", 3_600.0, 5, "none begins")
UNSCORED = events.ModelUnscored(MODEL, 0, 10, "HTTP 404: no such model")
DIED = events.JobDied("j-1", "acme", "sat", 3, "exit status 1")


def _pause(by: str, *, is_paused: bool) -> events.ControlChanged:
    verb = "pause" if is_paused else "resume"
    return events.ControlChanged("main", verb, MODEL, None, "paused", not is_paused, is_paused, by, "", 1)


async def _told(folder: Path, *told: events.Event) -> list[Notice]:
    """Return the notices of one run of a campaign whose journal is in the folder."""
    notices: list[Notice] = []
    journal = Journal(folder, "main", fsync=False)
    board = Notices([notices.append])
    stream = EventStream(FixedClock(), [board])
    try:
        remembered = ToldNotices(JournalThread(journal, inline=True, clock=FixedClock(), emit=stream.emit))
        keeping = asyncio.create_task(board.keep(remembered))
        await asyncio.sleep(0)
        for event in told:
            stream.emit(event)
        await board.pass_on(remembered)
        keeping.cancel()
    finally:
        journal.close()
    return notices


async def test_every_kind_of_notice_names_its_subject(tmp_path: Path) -> None:
    told = await _told(tmp_path, PAUSED, SPENT, DROPPED, DRIFTED, SETTLED, STALLED, DIED)
    assert [(one.kind, one.subject) for one in told] == [
        ("model.paused", f"model/{MODEL}"),
        ("budget.exhausted", f"model/{MODEL}"),
        ("score.dropped", f"pair/{MODEL}/affine:sat"),
        ("endpoint.drifted", f"model/{MODEL}"),
        ("pair.settled", f"pair/{MODEL}/affine:sat"),
        ("run.stalled", "run/main"),
        ("job.died", "job/j-1"),
    ]
    assert told[1].text == f"{MODEL} has used 9 of 10 tokens of 24 h"
    assert "0.60 in affine:sat, 0.80 before (-0.30 to -0.10)" in told[2].text
    assert told[2].document("main")["type"] == "headgate.score.dropped"


async def test_what_lasts_is_told_once_over_runs_until_it_ends(tmp_path: Path) -> None:
    lasting = (PAUSED, SPENT, STALLED, DROPPED, SETTLED)
    assert len(await _told(tmp_path, *lasting, *lasting)) == 5
    assert await _told(tmp_path, *lasting) == []
    ended = (
        events.ModelResumed(MODEL, 0, 900.0),  # its time is over, which says nothing yet
        events.SampleAccepted(sample()),
        events.SampleAccepted(sample()),
        events.DailyBudgetFreed(MODEL, "daily_tokens", 60.0),
        events.RunMoved("main", 7_200.0),
    )
    assert [one.kind for one in await _told(tmp_path, *ended)] == ["model.resumed"]
    again = [one.kind for one in await _told(tmp_path, *lasting)]
    assert again == ["model.paused", "budget.exhausted", "run.stalled"]


async def test_a_model_without_scores_is_told_once_a_day(tmp_path: Path) -> None:
    (told,) = await _told(tmp_path, UNSCORED, UNSCORED)
    assert (told.kind, told.subject) == ("model.unscored", f"model/{MODEL}")
    assert told.text == f"{MODEL} has no score for its last 10 samples: HTTP 404: no such model"
    assert await _told(tmp_path, UNSCORED) == []


async def test_a_pause_by_an_operator_is_told_with_who_and_ends_when_it_is_resumed(tmp_path: Path) -> None:
    told = await _told(tmp_path, _pause("anna", is_paused=True), _pause("bob", is_paused=False))
    assert [(one.kind, one.text) for one in told] == [
        ("model.paused", f"{MODEL} is paused by anna"),
        ("model.resumed", f"{MODEL} is resumed by bob"),
    ]


async def test_many_notices_of_one_kind_are_counted_and_not_sent(tmp_path: Path) -> None:
    many = [events.PairSettled(MODEL, f"e{number}", 40, 0.5, 0.45, 0.55) for number in range(50)]
    assert len(await _told(tmp_path, *many, DRIFTED)) == 20 + 1


class _Receiver(BaseHTTPRequestHandler):
    got: ClassVar[list[tuple[dict[str, str], bytes]]] = []
    answers: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.answers.pop(0) if self.answers else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    """The address of something that takes webhooks."""
    server = HTTPServer(("127.0.0.1", 0), _Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    thread.join()
    server.server_close()


def _sent(
    url: str, *told: events.Event, secret: str = "s3cret", command: tuple[str, ...] = (), timeout_s: float = 10.0
) -> None:
    """Have events told, and wait until they are passed on."""
    senders = senders_of(url, secret, command, "main", timeout_s)
    board = Notices(senders)
    for event in told:
        board.tell(event)
    for sender in senders:
        sender.close()


def test_a_webhook_is_posted_signed_and_without_secrets(receiver: str) -> None:
    key = Secret("sk-very-secret-0123456789")
    _Receiver.got.clear()
    _Receiver.answers[:] = [503]
    _sent(receiver, events.JobDied("j-1", "acme", "sat", 3, f"refused: {key.reveal()}"))
    (_, first), (headers, body) = _Receiver.got
    assert first == body, "it is tried again"
    document = json.loads(body)
    assert (document["type"], document["campaign"], document["data"]["attempts"]) == ("headgate.job.died", "main", 3)
    assert key.reveal() not in body.decode()
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(b"s3cret", content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-id"] == document["id"]


def test_what_a_receiver_refuses_for_good_is_tried_once_and_logged(
    receiver: str, caplog: pytest.LogCaptureFixture
) -> None:
    _Receiver.got.clear()
    _Receiver.answers[:] = [401]
    _sent(receiver, DIED, secret="")
    ((headers, _),) = _Receiver.got
    assert "webhook-signature" not in headers
    assert "notice job.died was not passed on by the webhook: it was answered 401" in caplog.text


def test_a_command_reads_the_notice_and_one_that_fails_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = tmp_path / "notice.json"
    write = f"import sys; open({str(made)!r}, 'w').write(sys.stdin.read()); sys.exit('no room')"
    _sent("", DIED, command=(sys.executable, "-c", write))
    assert json.loads(made.read_text())["subject"] == "job/j-1"
    assert "not passed on by the command: it ended with 1: no room" in caplog.text


def test_a_command_that_takes_too_long_is_killed_with_what_it_has_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    # The shell and its child hold the pipe open for writing: its end is read once both are gone.
    _sent("", DIED, command=("/bin/sh", "-c", f"exec 3>{fifo}; echo begun >&3; sleep 1000; true"), timeout_s=2.0)
    os.set_blocking(reader, True)
    with os.fdopen(reader) as held:
        assert held.read() == "begun\n"
    assert "not passed on by the command: it did not end within 2 s" in caplog.text
