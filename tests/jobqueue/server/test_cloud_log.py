"""The log in Google Cloud Logging, with a double in place of its client."""

from __future__ import annotations

import builtins
import logging
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate.core import Secret
from headgate.core.errors import MissingExtraError
from headgate.jobqueue.server import cloud_log
from headgate.jobqueue.server.cloud_log import CloudHandler, cloud_logging, labels_of

_LABELS = {"job": "4711", "user": "alice"}


@dataclass
class Cloud:
    """Stands for `google.cloud.logging.Logger` and its batch."""

    lines: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.gate.set()

    def batch(self) -> Cloud:
        return self

    def log_text(self, text: str, *, labels: dict[str, str], severity: str) -> None:
        self.lines.append((text, labels, severity))

    def commit(self) -> None:
        self.gate.wait(10)
        if self.error is not None:
            raise self.error


def _logged(handler: CloudHandler, *messages: str) -> None:
    for message in messages:
        handler.handle(logging.LogRecord("headgate.jobqueue", logging.INFO, "", 0, message, (), None))


def test_every_line_has_the_labels_of_the_seed_and_no_secret() -> None:
    cloud = Cloud()
    handler = CloudHandler(cloud, _LABELS)
    secret = Secret("correct-horse-battery")
    _logged(handler, "Job 17 finished by w", f"with {secret.reveal()}")
    handler.close()
    handler.close()
    assert [(labels, severity) for _, labels, severity in cloud.lines] == [(_LABELS, "INFO")] * 2
    assert cloud.lines[0][0].endswith("[INFO] Job 17 finished by w")
    assert "correct-horse" not in cloud.lines[1][0]


def test_a_slow_cloud_holds_nobody_up_and_what_was_dropped_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_log, "_MOST_WAITING", 2)
    cloud = Cloud()
    cloud.gate.clear()
    handler = CloudHandler(cloud, _LABELS)
    _logged(handler, *(f"line {number}" for number in range(20)))
    cloud.gate.set()
    handler.close()
    texts = [text for text, _, _ in cloud.lines]
    dropped = [int(text.split()[0]) for text in texts if "dropped" in text]
    assert sum(dropped) + len(texts) - len(dropped) == 20


def test_a_cloud_that_fails_is_said_in_the_local_log(caplog: pytest.LogCaptureFixture) -> None:
    handler = CloudHandler(Cloud(error=OSError("no route to host")), _LABELS)
    _logged(handler, "one")
    handler.close()
    assert "1 lines were not sent to Google Cloud Logging: no route to host" in caplog.text


def test_the_log_is_sent_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    monkeypatch.setattr(cloud_log, "_cloud_logger", lambda: cloud)
    log = logging.getLogger("headgate.jobqueue.test_cloud")
    with cloud_logging({"SLURM_JOB_ID": "4711", "USER": "alice"}):
        log.warning("within")
    log.warning("after")
    assert [(text[-6:], labels) for text, labels, _ in cloud.lines] == [("within", _LABELS)]


def test_without_the_extra_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("google"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"headgate\[gcp\]"), cloud_logging({}):
        pass


def test_outside_of_slurm_the_job_is_empty() -> None:
    assert labels_of({"USER": "bob"}) == {"job": "", "user": "bob"}
