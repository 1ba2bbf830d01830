"""Workers as processes that are stopped, killed and frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.jobqueue.worker import RetryPolicy, SyncJobQueueClient
from tests.jobqueue.worker.queue_site import QueueSite
from tests.processes.alive import is_alive

pytestmark = pytest.mark.slow

SLEEPER = "sh -c 'echo $$ > {pid}; sleep 300 & wait'"


@contextmanager
def worker(
    site: QueueSite, command: str, *options: str, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `headgate jobqueue work`; it is gone afterwards, whatever happened."""
    words = [sys.executable, "-m", "headgate.cli", "jobqueue", "work", "--command", command, "--worker", "w", *options]
    process = subprocess.Popen(
        words, env={**os.environ, "HEADGATE_JOBQUEUE_URL": site.url, **(env or {})}, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def started(site: QueueSite, pid_file: Path) -> int:
    """Return the process id of the job's command once it runs."""
    site.until(lambda: pid_file.exists() and pid_file.read_text().strip() != "", 30)
    return int(pid_file.read_text())


def test_sigterm_stops_the_command_gives_the_job_back_uncharged_and_exits_143(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1")
    with worker(site, SLEEPER.format(pid=tmp_path / "pid")) as process:
        pid = started(site, tmp_path / "pid")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert not is_alive(pid)
    job = site.job("1")
    assert (job.state, job.failures) == ("pending", 0)
    assert site.happenings("1")[-1] == "given_back"


def test_ctrl_c_gives_the_job_back_and_exits_130(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1")
    with worker(site, SLEEPER.format(pid=tmp_path / "pid")) as process:
        pid = started(site, tmp_path / "pid")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert not is_alive(pid)
    assert site.job("1").state == "pending"


def test_a_worker_that_is_killed_takes_its_command_along(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1")
    with worker(site, SLEEPER.format(pid=tmp_path / "pid")) as process:
        pid = started(site, tmp_path / "pid")
        process.kill()
        site.until(lambda: not is_alive(pid), 10)


@pytest.mark.long
def test_a_frozen_worker_is_charged_and_its_command_ends_before_its_job_goes_on_elsewhere(
    site: QueueSite, tmp_path: Path
) -> None:
    """The zombie: frozen beyond its lease, then awake; nothing that it says counts any more."""
    site.register()
    site.submit("1", pool="p")
    with worker(site, SLEEPER.format(pid=tmp_path / "pid"), "--lease-s", "10", "--reserve", "before") as process:
        pid = started(site, tmp_path / "pid")
        process.send_signal(signal.SIGSTOP)
        site.until(lambda: site.job("1").state == "pending" or not is_alive(pid), 20)
        assert not is_alive(pid), "the guard ends the command first"
        expired = site.until_state("1", "pending", 20)
        assert (expired.failures, "sent no heartbeat for 10 s" in expired.last_error) == (1, True)
        with SyncJobQueueClient(site.url, retry=RetryPolicy(patience_s=5)) as client:
            (server,) = client.resources()
            assert server.job_id is None
        process.send_signal(signal.SIGCONT)
        second = site.until_state("1", "in_progress", 20)
        assert second.epoch == 2, "awake, it claims the job anew like everybody else"
    happened = site.happenings("1")
    assert happened.count("expired") == 1
    assert "failed" not in happened[happened.index("expired") :]


def test_a_worker_goes_on_over_a_restart_of_the_server(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1", "2")
    go, ended = tmp_path / "go", tmp_path / "ended"
    command = f"sh -c 'while [ ! -e {go} ]; do sleep 0.05; done; echo {{}} > $HEADGATE_RESULT_FILE; touch {ended}'"
    with worker(site, command, "--stop-when-empty") as process:
        site.until_state("1", "in_progress", 30)
        site.stop()
        go.touch()
        site.until(ended.exists)
        site.start()
        assert process.wait(60) == 0
    assert [site.job(job_id).state for job_id in "12"] == ["done", "done"]
    assert site.job("1").epoch == 1


def test_a_worker_without_a_token_is_told_so(site: QueueSite) -> None:
    from headgate.net.token_stores import open_tokens
    from headgate.net.tokens import Scope, new_token

    store = open_tokens(site.database)
    token, text = new_token("reader", [Scope.READ], now=time.time())
    store.add(token, forget_before=0)
    store.close()
    site.until(lambda: _is_refused(site))
    with worker(site, "true", "--stop-when-empty") as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"carries no token" in said
    assert b"redacted" not in said, "the next step can be read"
    with worker(site, "true", "--stop-when-empty", env={"HEADGATE_JOBQUEUE_TOKEN": text.reveal()}) as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"forbidden" in said
    assert text.reveal().encode() not in said


def _is_refused(site: QueueSite) -> bool:
    with SyncJobQueueClient(site.url, retry=RetryPolicy(patience_s=5)) as client:
        from headgate.core.errors import UnauthorizedError

        try:
            client.statistics()
        except UnauthorizedError:
            return True
    return False
