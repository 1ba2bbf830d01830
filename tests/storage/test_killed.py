"""kill -9 at random moments of real writers: nothing that was acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headgate.storage import Chosen
from headgate.storage.batches import put_batch
from headgate.storage.frames import scan, verify
from headgate.storage.manifest import ManifestLog
from headgate.storage.objects import FolderObjects
from tests.storage.killed_writer import ROWS, batch

KILLS = int(os.environ.get("KILLS", "20"))


def _batches_there(root: Path) -> Counter[int]:
    """Return how many rows of each batch a reader sees; fails for anything corrupt or doubled."""
    objects = FolderObjects(root)
    found = scan(objects, ManifestLog(objects).visible(), Chosen(), ["sequence"])
    assert (found.problems, found.duplicates) == ((), 0)
    return Counter(sequence // ROWS for sequence in found.frame["sequence"])


def _wait_for_a_file_in_the_making(root: Path) -> None:
    """Return as soon as a writer has begun a file that it has not moved into place, or after a second."""
    end = time.monotonic() + 1
    known = set(root.glob(".tmp/*"))
    while time.monotonic() < end and not set(root.glob(".tmp/*")) - known:
        pass


@contextmanager
def _killed_at_last(writer: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the writer's group at the end: a test that fails would wait for it without end."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(writer.pid, signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.long
def test_writers_killed_at_random_points_lose_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    command = [sys.executable, "-m", "tests.storage.killed_writer", str(tmp_path)]
    acknowledged = 0
    cut_short = 0
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0) as writer,
        _killed_at_last(writer),
    ):
        assert writer.stdin is not None
        assert writer.stdout is not None
        for kill in range(10 * KILLS):
            if kill >= KILLS and cut_short:
                break
            writer.stdin.write(f"{acknowledged}\n")
            writer.stdin.flush()
            pid = int(writer.stdout.readline().removeprefix("pid "))
            for _ in range(rng.randrange(1, 4)):
                acknowledged = int(writer.stdout.readline().removeprefix("done ")) + 1
            if kill % 2:
                _wait_for_a_file_in_the_making(tmp_path)
            else:
                time.sleep(rng.uniform(0, 0.03))  # anywhere in the next batch: the moment is what is tried here
            os.kill(pid, signal.SIGKILL)
            while (line := writer.stdout.readline().split()) != ["gone"]:
                acknowledged = int(line[-1]) + 1
            there = _batches_there(tmp_path)
            assert set(range(acknowledged)) <= there.keys() <= set(range(acknowledged + 1))
            assert set(there.values()) <= {ROWS}
            cut_short += any(tmp_path.glob(".tmp/*"))
        writer.stdin.close()
    objects = FolderObjects(tmp_path)
    for number in range(acknowledged + 1):
        put_batch(objects, f"b{number:04d}", batch(number))
    assert _batches_there(tmp_path) == dict.fromkeys(range(acknowledged + 1), ROWS)
    assert verify(objects, ManifestLog(objects).visible()).problems == ()
    assert cut_short > 0, "no kill hit a writer in the middle of a file"
