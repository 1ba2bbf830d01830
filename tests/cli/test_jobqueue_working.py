"""`headgate jobqueue add`, `work` and `reserve`, in this process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.house.tree import ROOT
from tests.jobqueue.worker.queue_site import QueueSite, queue_site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueSite]:
    with queue_site(tmp_path) as site:
        monkeypatch.setenv("HEADGATE_JOBQUEUE_URL", site.url)
        yield site


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives the next command a standard input."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_ten_lines_become_ten_jobs_whose_results_are_seen(
    headgate: Command, site: QueueSite, typed: Callable[[str], None]
) -> None:
    typed("".join(f"{number}\n" for number in range(1, 11)))
    assert "10 jobs added" in headgate("jobqueue", "add", "--", "sh", "-c", "echo square; expr {} '*' {}").err
    assert headgate("jobqueue", "work", "--run-commands", "--stop-when-empty", "--count", "4").status == 0
    assert headgate("jobqueue", "status", "--json").document["jobs"]["done"] == 10
    shown = headgate("jobqueue", "jobs").out
    assert "exit 0: 81" in shown
    assert "sh -c 'echo square; expr 9" in shown
    assert " failures " not in shown
    assert [one["result"] for one in headgate("jobqueue", "jobs", "--json").document][2] == {
        "exit_status": 0,
        "output": "square\n9",
    }


def test_a_command_without_braces_is_one_job_and_reads_no_input(headgate: Command, site: QueueSite) -> None:
    named = ("--id", "hello", "--team", "red", "--max-attempts", "1")
    said = headgate("jobqueue", "add", *named, "--", "ls", "--all", "/no such")
    assert said.status == 0, said.err
    job = site.job("hello")
    assert (job.team, job.task, job.instance, job.payload) == (
        "red", "command", "ls --all '/no such'", {"command": ["ls", "--all", "/no such"]},
    )  # fmt: skip
    headgate("jobqueue", "work", "--run-commands", "--stop-when-empty")
    assert site.job("hello").last_error.startswith("the command ended with exit status 2; the end of its output:\nls:")
    assert "the command ended" in headgate("jobqueue", "jobs").out


def test_a_command_of_several_lines_is_one_job(headgate: Command, site: QueueSite) -> None:
    script = "x = 6\nprint(x * 7)"
    assert headgate("jobqueue", "add", "--id", "1", "--", sys.executable, "-c", script).status == 0
    headgate("jobqueue", "work", "--run-commands", "--stop-when-empty")
    assert site.job("1").result == {"exit_status": 0, "output": "42"}
    assert "x = 6 print(x * 7)" in site.job("1").instance


def test_lines_without_a_command_are_commands(headgate: Command, site: QueueSite, typed: Callable[[str], None]) -> None:
    typed("echo 'a  b'\n\n  echo c\n")
    added = headgate("jobqueue", "add", "--json").document
    assert added["added"] == 2
    assert [site.job(job_id).payload["command"] for job_id in added["ids"]] == [["echo", "a  b"], ["echo", "c"]]


def test_adding_again_changes_nothing_and_a_line_that_comes_twice_is_two_jobs(
    headgate: Command, site: QueueSite, typed: Callable[[str], None]
) -> None:
    for expected in ({"added": 3, "existing": 0}, {"added": 0, "existing": 3}):
        typed("true\ntrue\nfalse\n")
        document = headgate("jobqueue", "add", "--json").document
        assert document | expected == document
    typed("true\n")
    assert "0 jobs added; 1 there already: --id" in headgate("jobqueue", "add").err


def test_an_id_belongs_to_one_command(headgate: Command, site: QueueSite, typed: Callable[[str], None]) -> None:
    assert headgate("jobqueue", "add", "--id", "one", "--", "true").status == 0
    refused = headgate("jobqueue", "add", "--id", "one", "--", "false")
    assert refused.status == 2
    assert "'one' exists with other contents" in refused.err
    assert "Choose another id" in refused.err
    typed("1\n2\n")
    assert headgate("jobqueue", "add", "--id", "n-{}", "--json", "--", "echo", "{}").document["ids"] == ["n-1", "n-2"]
    typed("1\n2\n")
    assert "named twice" in headgate("jobqueue", "add", "--id", "same", "--", "echo", "{}").err


def test_without_a_command_or_input_the_next_step_is_said(
    headgate: Command, monkeypatch: pytest.MonkeyPatch, typed: Callable[[str], None]
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    said = headgate("jobqueue", "add")
    assert said.status == 2
    assert "seq 3 | headgate jobqueue add -- echo {}" in said.err
    typed("echo 'unclosed\n")
    assert "quotation marks" in headgate("jobqueue", "add").err


def test_a_worker_runs_what_jobs_carry_only_when_it_is_told_to(
    headgate: Command, site: QueueSite, tmp_path: Path
) -> None:
    for options in ((), ("--command", "true", "--run-commands"), ("--run-commands", "--task", "t")):
        assert headgate("jobqueue", "work", "--stop-when-empty", *options).status == 2
    headgate("jobqueue", "add", "--id", "carried", "--", "touch", str(tmp_path / "ran"))
    headgate("jobqueue", "work", "--stop-when-empty", "--max-jobs", "1", "--command", "true")
    assert not (tmp_path / "ran").exists()
    headgate("jobqueue", "work", "--stop-when-empty", "--run-commands")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("payload", ["{}", '{"command":[]}', '{"command":"rm"}', '{"command":["ls",1]}'])
def test_a_job_that_carries_no_command_is_dead_at_once(headgate: Command, site: QueueSite, payload: str) -> None:
    site.submit("1", task="command", payload=payload)
    site.submit("evaluation")
    assert headgate("jobqueue", "work", "--stop-when-empty", "--run-commands").status == 0
    assert site.job("1").state == "dead"
    assert "carries no command" in site.job("1").last_error
    assert site.job("evaluation").state == "pending"


def test_a_carried_command_may_write_a_result_of_its_own(headgate: Command, site: QueueSite) -> None:
    script = "echo '{\"score\": 0.5}' > $HEADGATE_RESULT_FILE"
    headgate("jobqueue", "add", "--id", "1", "--", "sh", "-c", script)
    headgate("jobqueue", "work", "--stop-when-empty", "--run-commands")
    assert site.job("1").result == {"score": 0.5}
    assert '{"score": 0.5}' in headgate("jobqueue", "jobs").out


def test_work_runs_the_command_for_each_job_and_ends_when_there_is_none(headgate: Command, tmp_path: Path) -> None:
    with queue_site(tmp_path) as site:
        site.submit("1", "2", "3")
        said = headgate(
            "jobqueue", "work", "--url", site.url, "--stop-when-empty", "--count", "2", "--worker", "w",
            "--results-dir", str(tmp_path / "results"), "--log-dir", str(tmp_path / "logs"), "--task", "t",
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
        assert headgate("jobqueue", "work", "--url", site.url, "--command", command, "--idle-exit-s", "0.2").status == 0
        assert site.job("2").state == "done"


def test_within_a_command_reserve_prints_where_the_server_is(headgate: Command, tmp_path: Path) -> None:
    with queue_site(tmp_path) as site:
        site.register()
        site.submit("1", pool="p", max_attempts=1)
        asking = f"{sys.executable} -m headgate.cli jobqueue reserve"
        command = f"sh -c '{asking} --timeout-s 30 > $HEADGATE_RESULT_FILE && {asking} --release'"
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
    "options",
    [("--count", "0"), ("--lease-s", "5"), ("--max-jobs", "0"), ("--timeout-s", "0"), ("--reserve", "perhaps")],
)
def test_options_out_of_bounds_are_refused(headgate: Command, options: tuple[str, ...]) -> None:
    assert headgate("jobqueue", "work", "--command", "true", *options).status == 2


@pytest.mark.parametrize("command", ["", "sh -c 'unclosed"])
def test_a_command_that_is_none_is_refused(headgate: Command, command: str) -> None:
    assert headgate("jobqueue", "work", "--command", command).status == 2


def test_a_worker_whose_token_is_refused_ends_as_with_a_wrong_option(
    headgate: Command, site: QueueSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_JOBQUEUE_DATABASE", site.database)
    token = headgate("jobqueue", "token", "create", "reader", "--scopes", "read").out.strip()
    for held, why in (("", "carries no token"), (token, "lacks the scope 'claim'")):
        monkeypatch.setenv("HEADGATE_JOBQUEUE_TOKEN", held)
        said = headgate("jobqueue", "work", "--command", "true")
        assert (said.status, why in said.err) == (2, True), said.err


def test_a_legacy_address_with_its_token_stays_out_of_the_settings_of_an_array_task(tmp_path: Path) -> None:
    worker = tmp_path / "headgate"
    worker.write_text('#!/bin/sh\necho "$JOB_QUEUE_URL|$HEADGATE_JOBQUEUE_URL"\n')
    worker.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name != "HEADGATE_JOBQUEUE_URL"}
    environ |= {"JOB_QUEUE_URL": "http://worker:hgq_1@queue", "EVAL_COMMAND": "true", "EVAL_HEADGATE": str(worker)}
    script = ["bash", str(ROOT / "deployments/slurm/eval.sh")]
    said = subprocess.run(script, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    assert said.stdout.splitlines()[0] == "http://worker:hgq_1@queue|", "such an address is refused as a setting"
