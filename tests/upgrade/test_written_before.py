"""What an earlier version wrote is opened and goes on: a killed campaign, a job queue with its tokens, a ledger.

`written_2026_11.tar.xz` holds the files as that version left them when its processes were killed: a store with 48
samples, a journal with 294 open tasks and 111 samples that were not in the store yet; a queue with 10 jobs that
are done or wait, one whose worker died, and two tokens; a placement journal with two works running and one waiting.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headgate.cli import main
from headgate.placement.service.journal import Journal as PlacementJournal
from headgate.storage import Journal

ARCHIVE = Path(__file__).with_name("written_2026_11.tar.xz")
PROGRAM = (sys.executable, "-m", "headgate.cli")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with what the earlier version left."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.mark.slow
async def test_a_killed_campaign_of_an_earlier_version_goes_on(
    written: Path, roster_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(written / "journal", "main")
    assert (journal.open_count(), journal.spool_count()) == (294, 111)
    journal.close()
    options = ("--store", "samples", "--journal", "journal", "--environment", "affine:sat,affine:ded")
    run = ("run", "--roster", str(roster_file), "--campaign", "main", *options, "--duration", "1", "--workers", "4")
    # The baselines answer in this process.
    command = asyncio.to_thread(subprocess.run, [*PROGRAM, *run], cwd=written, capture_output=True, text=True)
    done = await asyncio.wait_for(command, 100)
    assert done.returncode == 0, done.stderr
    sql = "select model, environment, sequence from stored"
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["query", sql, "--store", str(written / "samples"), "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)
    numbers: dict[tuple[str, str], list[int]] = {}
    for row in stored:
        numbers.setdefault((row["model"], row["environment"]), []).append(row["sequence"])
    assert len(stored) > 48 + 111, "what only the spool had is stored, and some of the open ones are sampled"
    journal = Journal(written / "journal", "main")
    try:
        environments, models = {environment for _, environment in numbers}, {model for model, _ in numbers}
        for task in journal.adopt(environments, models):
            numbers[task.model, task.environment].append(task.sequence)
        assert journal.spool_count() == 0
    finally:
        journal.close()
    assert sum(map(len, numbers.values())) >= 48 + 294
    assert [sorted(each) == list(range(len(each))) for each in numbers.values()] == [True] * 4, (
        "no number is missing, and none is there twice"
    )


@contextmanager
def _queue(folder: Path) -> Iterator[str]:
    """Serve the queue, and give its address."""
    command = [*PROGRAM, "jobqueue", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            yield next(word for word in said.split() if word.startswith("http://"))
        finally:
            process.terminate()
            process.stdout.read()


@pytest.mark.slow
def test_a_job_queue_and_tokens_of_an_earlier_version_go_on(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = (written / "admin.token").read_text()
    monkeypatch.chdir(written)
    monkeypatch.setenv("HEADGATE_JOBQUEUE_DATABASE", "sqlite:///queue/queue.db")
    monkeypatch.setenv("HEADGATE_JOBQUEUE_TOKEN", token)
    with _queue(written) as url:
        monkeypatch.setenv("HEADGATE_JOBQUEUE_URL", url)
        assert main(["jobqueue", "withdraw", "south.long"]) == 0
        assert main(["jobqueue", "work", "--run-commands", "--stop-when-empty"]) == 0
        jobs = _get(f"{url}/v1/jobs", token)
        states = {job["id"]: job["state"] for job in jobs}
        assert states == {f"north.{n}": "done" for n in range(1, 7) if n != 3} | {
            f"south.{n}": "done" for n in range(1, 5)
        } | {"north.3": "dead", "south.long": states["south.long"]}
        assert {job["team"] for job in _get(f"{url}/v1/jobs", (written / "north.token").read_text())} == {"north"}


def _get(url: str, token: str) -> list[dict[str, str]]:
    answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, str]] = answer.json()["jobs"]
    return found


def test_a_placement_journal_of_an_earlier_version_is_read(written: Path) -> None:
    journal = PlacementJournal(written / "placement" / "journal.sqlite").open()
    try:
        read = journal.load(now=100.0, wall=time.time())
    finally:
        journal.close()
    assert [len(read.pools), len(read.groups), len(read.requests)] == [1, 2, 3]
    assert {each.request.request_id for each in read.requests} == {"high", "low", "queued"}
