"""`headgate jobqueue work` and `reserve`, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.jobqueue.worker.queue_site import queue_site


def test_work_runs_the_command_for_each_job_and_ends_when_there_is_none(headgate: Command, tmp_path: Path) -> None:
    with queue_site(tmp_path) as site:
        site.submit("1", "2", "3")
        said = headgate(
            "jobqueue", "work", "--url", site.url, "--stop-when-empty", "--count", "2", "--name", "w",
            "--results-dir", str(tmp_path / "results"), "--log-dir", str(tmp_path / "logs"), "--tasks", "t",
            "--command", "sh -c 'echo working; echo {} > $HEADGATE_RESULT_FILE'",
        )  # fmt: skip
        assert said.status == 0, said.err
        assert [site.job(job_id).state for job_id in "123"].count("done") >= 1
        assert "worker w at" in said.err
    assert (tmp_path / "logs/1.1.log").read_text() == "working\n"


def test_a_worker_ends_after_its_jobs_or_when_it_has_none_to_do(headgate: Command, tmp_path: Path) -> None:
    with queue_site(tmp_path) as site:
        site.submit("1", "2")
        command = "sh -c 'echo {} > $HEADGATE_RESULT_FILE'"
        assert headgate("jobqueue", "work", "--url", site.url, "--command", command, "--max-jobs", "1").status == 0
        assert site.job("2").state == "pending"
        assert headgate("jobqueue", "work", "--url", site.url, "--command", command, "--idle-exit", "0.2").status == 0
        assert site.job("2").state == "done"


def test_within_a_command_reserve_prints_where_the_server_is(headgate: Command, tmp_path: Path) -> None:
    with queue_site(tmp_path) as site:
        site.register()
        site.submit("1", pool="p", max_attempts=1)
        import sys

        asking = f"{sys.executable} -m headgate.cli jobqueue reserve"
        command = f"sh -c '{asking} --timeout 30 > $HEADGATE_RESULT_FILE && {asking} --release'"
        assert headgate("jobqueue", "work", "--url", site.url, "--command", command, "--stop-when-empty").status == 0
        job = site.job("1")
    assert job.state == "done", job.last_error
    assert {key: job.result[key] for key in ("host", "port", "index", "epoch")} == {
        "host": "127.0.0.1", "port": 9_000, "index": 0, "epoch": 1,
    }  # fmt: skip


def test_reserve_prints_the_server_that_the_command_was_started_with(
    headgate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_RESOURCE_HOST", "gpu1")
    monkeypatch.setenv("HEADGATE_RESOURCE_PORT", "8000")
    said = headgate("jobqueue", "reserve")
    assert json.loads(said.out)["host"] == "gpu1"


def test_reserve_outside_of_a_job_says_where_it_belongs(headgate: Command) -> None:
    said = headgate("jobqueue", "reserve")
    assert said.status == 2
    assert "headgate jobqueue work" in said.err


@pytest.mark.parametrize(
    "options", [("--count", "0"), ("--lease", "5"), ("--max-jobs", "0"), ("--timeout", "0"), ("--reserve", "perhaps")]
)
def test_options_out_of_bounds_are_refused(headgate: Command, options: tuple[str, ...]) -> None:
    assert headgate("jobqueue", "work", "--command", "true", *options).status == 2


@pytest.mark.parametrize("command", ["", "sh -c 'unclosed"])
def test_a_command_that_is_none_is_refused(headgate: Command, command: str) -> None:
    assert headgate("jobqueue", "work", "--command", command).status == 2
