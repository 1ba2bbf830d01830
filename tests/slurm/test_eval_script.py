"""`deployments/slurm/eval.sh` on a real SLURM: every job is done once, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from headgate.jobqueue import Happening, JobState
from headgate.jobqueue.wire import EntryOut, JobOut
from headgate.jobqueue.worker import SyncJobQueueClient
from tests.slurm.cluster import HEADGATE, Array, program, served_queue, task_of, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


def _held(client: SyncJobQueueClient) -> dict[int, JobOut]:
    """Return the jobs that workers hold, by array task."""
    return {task_of(job.worker): job for job in client.all_jobs(state=JobState.IN_PROGRESS)}


def _happened(client: SyncJobQueueClient, job: JobOut) -> list[EntryOut]:
    return client.job_history(job.id).entries


def _whats(entries: list[EntryOut]) -> list[Happening]:
    life = {Happening.CLAIMED, Happening.GIVEN_BACK, Happening.EXPIRED, Happening.FAILED, Happening.COMPLETED}
    return [entry.what for entry in entries if entry.what in life]


def _all_done_once(client: SyncJobQueueClient, jobs: int) -> None:
    assert len(list(client.all_jobs(state=JobState.DONE))) == jobs
    completions = Counter(
        e.job_id for job in client.all_jobs() for e in _happened(client, job) if e.what == "completed"
    )
    assert set(completions.values()) == {1}
    assert len(completions) == jobs
    assert [server.job_id for server in client.resources()] == [None, None]


def test_a_cancelled_task_gives_its_job_back_at_once_and_every_job_is_done_once(tmp_path: Path) -> None:
    with served_queue(tmp_path, jobs=12, delay_ms=20) as client:
        array = Array.submit(tmp_path, client.address.url, tasks=4)
        until(lambda: len(_held(client)) == 4)
        (cancelled, its_job), (warned, other_job), *_ = sorted(_held(client).items())
        array.cancel(cancelled)
        array.cancel(warned, "--batch", "--signal=TERM")  # what SLURM does a minute before the time limit
        until(lambda: not array.running())
        for job in (its_job, other_job):
            assert _whats(_happened(client, job)) == ["claimed", "given_back", "claimed", "completed"]
        _all_done_once(client, 12)
        assert [job.failures for job in client.all_jobs()] == [0] * 12
        expected = dict.fromkeys(range(4), "COMPLETED") | {cancelled: "CANCELLED"}
        assert array.states() == expected
        assert "told to end" in array.log(warned)


def test_a_killed_worker_loses_its_job_with_its_lease_and_another_one_takes_its_place(tmp_path: Path) -> None:
    with_pid = program(tmp_path / "headgate", f'echo $$ >"$0.$SLURM_ARRAY_TASK_ID"\nexec {HEADGATE} "$@"')
    with served_queue(tmp_path, jobs=8, delay_ms=20) as client:
        array = Array.submit(
            tmp_path,
            client.address.url,
            tasks=2,
            EVAL_HEADGATE=with_pid,
            EVAL_OPTIONS="--lease-s 10",
            EVAL_PAUSE_S="1",
            EVAL_IDLE_S="12",
        )
        until(lambda: len(_held(client)) == 2)
        task, its_job = next(iter(_held(client).items()))
        os.kill(int(Path(f"{with_pid}.{task}").read_text()), signal.SIGKILL)
        until(lambda: not array.running())
        assert _whats(_happened(client, its_job)) == ["claimed", "expired", "claimed", "completed"]
        _all_done_once(client, 8)
        assert "the worker ended with status 137; the next one starts in 1 s" in array.log(task)
        assert array.states() == {0: "COMPLETED", 1: "COMPLETED"}


def test_a_script_without_an_address_says_what_to_export(tmp_path: Path) -> None:
    array = Array.submit(tmp_path, "", tasks=1)
    until(lambda: not array.running())
    assert array.states() == {0: "FAILED"}
    assert "HEADGATE_JOBQUEUE_URL is not set: export" in array.log(0)


def test_a_failing_worker_is_started_again_after_longer_and_longer_pauses(tmp_path: Path) -> None:
    failing = program(tmp_path / "headgate", 'echo >>"$0.starts"\n[ "$(wc -l <"$0.starts")" -gt 2 ] || exit 3')
    array = Array.submit(tmp_path, "http://127.0.0.1:9", tasks=1, EVAL_HEADGATE=failing, EVAL_PAUSE_S="1")
    until(lambda: not array.running())
    assert "the next one starts in 1 s" in array.log(0)
    assert "the next one starts in 2 s" in array.log(0)
    assert "no more work" in array.log(0)
    assert array.states() == {0: "COMPLETED"}
