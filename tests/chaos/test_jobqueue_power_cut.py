"""A power cut right after an answer: what was answered is on the disk, even if nothing is that was not flushed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headgate.jobqueue import Happening, JobSpec, object_text
from headgate.jobqueue.stores import SqliteStore
from headgate.jobqueue.wire import ClaimIn, CompleteIn
from headgate.jobqueue.worker import SyncJobQueueClient
from tests.jobqueue.checker import Told, violations_in

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@contextmanager
def server_with_copies(folder: Path, copies: Path) -> Iterator[str]:
    """Serve a queue and keep copies of its files as they were flushed last."""
    shim = folder / "durable_copy.so"
    source = Path(__file__).with_name("durable_copy.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    command = [sys.executable, "-m", "headgate.cli", "jobqueue", "serve", "--port", "0", "--health-check-every-s", "0"]
    variables = {
        "LD_PRELOAD": str(shim),
        "DURABLE_COPIES": str(copies),
        "HEADGATE_JOBQUEUE_DATABASE": f"sqlite:////{str(folder).lstrip('/')}/queue.db",
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[3]
        finally:
            server.kill()


def found_after_a_cut(copies: Path, place: Path, told: list[Told]) -> list[str]:
    """Return what is wrong with the queue that somebody finds when the power is back."""
    shutil.copytree(copies, place)
    store = SqliteStore(place / "queue.db").own("after the cut")
    try:
        with closing(store.reader()) as reader:
            return violations_in(reader, list(store.load().resources), told)
    finally:
        store.close()


@pytest.mark.skipif(shutil.which("cc") is None, reason="the files' flushed contents are kept by a library in C")
def test_what_was_answered_outlives_a_power_cut(tmp_path: Path, kills: int) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    told: list[Told] = []
    cuts = 0

    def cut() -> None:
        nonlocal cuts
        cuts += 1
        assert found_after_a_cut(copies, tmp_path / f"cut-{cuts}", told) == []

    with server_with_copies(tmp_path, copies) as url, SyncJobQueueClient(url) as client:
        for number in range(5 * kills):
            payload = object_text({"x": "y" * 2000 * (number % 100)})
            client.submit([JobSpec(f"job-{number}", "team", "task", payload=payload)])
            told.append(Told(Happening.SUBMITTED, f"job-{number}"))
            cut()
            (one,) = client.claim(ClaimIn(worker="w")).jobs
            lease = {"lease_id": one.lease.lease_id, "epoch": one.lease.epoch}
            told.append(Told(Happening.CLAIMED, one.job.id, worker="w", **lease))
            cut()
            result = {"number": number}
            client.complete(one.job.id, CompleteIn(**lease, result=result))
            told.append(Told(Happening.COMPLETED, one.job.id, worker="w", result=object_text(result), **lease))
            cut()
    assert cuts == 15 * kills
