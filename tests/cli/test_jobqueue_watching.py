"""Looking at a job queue and steering it from the command line."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.jobqueue.wire import ClaimIn, CompleteIn, FailIn, JobLeaseIn, ReserveIn
from tests.cli.conftest import Command
from tests.jobqueue.worker.queue_site import QueueSite, queue_site


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueSite]:
    """A queue with a job in each state, a busy server and a free one."""
    # The log of a command that an earlier test ran goes to a stream that is closed.
    logging.getLogger().handlers[:] = [h for h in logging.getLogger().handlers if h.get_name() != "headgate-log"]
    with queue_site(tmp_path) as site:
        site.register("p", servers=2, compatible_task=frozenset({"radio"}), body='{"compatible_task":["radio"]}')
        site.submit("done", "dead", "running", "waiting", task="radio", pool="p", max_attempts=1)
        site.submit("unserved", task="door", pool="p")
        with site.client as client:
            claimed = {c.job.id: c.lease for c in client.claim(ClaimIn(worker="w", count=3)).jobs}
            lease = {"lease_id": claimed["done"].lease_id, "epoch": 1}
            client.complete("done", CompleteIn(**lease, result={"q_score": 1}))
            client.fail("dead", FailIn(lease_id=claimed["dead"].lease_id, epoch=1, error="no GPU\nat all"))
            held = JobLeaseIn(job_id="running", lease_id=claimed["running"].lease_id, epoch=1)
            client.reserve(ReserveIn(**dict(held)))
        monkeypatch.setenv("JOB_QUEUE_URL", site.url)
        yield site


def test_status_shows_jobs_lanes_and_pools(headgate: Command, queue: QueueSite) -> None:
    said = headgate("jobqueue", "status")
    assert said.status == 0, said.err
    assert "no open server serves it" in said.out
    assert "radio" in said.out
    assert " note " in said.out
    document = headgate("jobqueue", "status", "--json").document
    assert document["jobs"] == {"pending": 2, "in_progress": 1, "done": 1, "dead": 1}
    assert document["pools"][0]["busy"] == 1


def test_of_many_teams_and_tasks_status_shows_those_with_most_pending_jobs(headgate: Command, queue: QueueSite) -> None:
    for task in ("alpha", "beta", "gamma"):
        queue.submit(f"{task}-1", task=task)
    queue.submit("beta-2", "beta-3", task="beta")
    said = headgate("jobqueue", "status", "--limit", "1")
    assert "beta" in said.out
    assert "alpha" not in said.out
    assert "4 more rows with 4 pending jobs: --limit 0 shows all, --json too" in said.out
    assert "alpha" in headgate("jobqueue", "status", "--limit", "0").out
    assert "more row" not in headgate("jobqueue", "status").out
    assert len(headgate("jobqueue", "status", "--limit", "1", "--json").document["lanes"]) == 5
    assert headgate("jobqueue", "status", "--limit", "-1").status == 2


def test_a_watched_status_is_shown_until_ctrl_c(
    headgate: Command, queue: QueueSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[float] = []

    def sleep(seconds: float) -> None:
        shown.append(seconds)
        if len(shown) == 2:
            queue.stop()
        if len(shown) == 3:
            raise KeyboardInterrupt

    from headgate.cli import live

    monkeypatch.setattr(live, "time", _Time(sleep))
    said = headgate("jobqueue", "status", "--watch")
    assert said.status == 0
    assert "does not answer" in said.out


class _Time:
    def __init__(self, sleep) -> None:  # type: ignore[no-untyped-def]
        self.sleep = sleep
        self.monotonic = time.monotonic


def test_watching_is_no_document(headgate: Command, queue: QueueSite) -> None:
    assert headgate("jobqueue", "status", "--watch", "--json").status == 2


def test_jobs_are_listed_and_filtered(headgate: Command, queue: QueueSite) -> None:
    assert "5 jobs" in headgate("jobqueue", "jobs").out
    found = headgate("jobqueue", "jobs", "--state", "pending", "--json").document
    assert [job["id"] for job in found] == ["waiting", "unserved"]
    assert "2 jobs, the first ones" in headgate("jobqueue", "jobs", "--limit", "2").out
    assert len(headgate("jobqueue", "jobs", "--limit", "0", "--json").document) == 5
    assert headgate("jobqueue", "jobs", "--state", "nowhere").status == 2


def test_a_list_that_is_whole_does_not_say_that_it_is_cut(headgate: Command, queue: QueueSite) -> None:
    assert headgate("jobqueue", "jobs", "--limit", "0", "--team", "nobody").out == "0 jobs\n"
    assert "the first ones" not in headgate("jobqueue", "jobs", "--limit", "5").out
    assert "the first ones" in headgate("jobqueue", "jobs", "--limit", "4").out
    assert len(headgate("jobqueue", "jobs", "--limit", "4", "--json").document) == 4


def test_a_document_has_every_job_and_a_table_the_first_hundred(headgate: Command, queue: QueueSite) -> None:
    queue.submit(*(f"job-{number}" for number in range(100)))
    assert len(headgate("jobqueue", "jobs", "--json").document) == 105
    assert len(headgate("jobqueue", "jobs", "--limit", "2", "--json").document) == 2
    assert "100 jobs, the first ones" in headgate("jobqueue", "jobs").out


def test_the_jobs_of_a_task_are_withdrawn_but_for_those_that_have_ended(headgate: Command, queue: QueueSite) -> None:
    said = headgate("jobqueue", "withdraw", "--task", "radio", "--reason", "wrong map")
    assert (said.status, said.out) == (0, "2 jobs withdrawn\n")
    assert {name: queue.job(name).state for name in ("done", "running", "waiting", "unserved")} == {
        "done": "done", "running": "dead", "waiting": "dead", "unserved": "pending"
    }  # fmt: skip
    said = headgate("jobqueue", "withdraw", "unserved", "--task", "radio")
    assert (said.status, "ids of jobs, or --team" in said.err) == (2, True)


def test_more_jobs_are_withdrawn_and_put_back_than_the_queue_changes_at_once(
    headgate: Command, queue: QueueSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.jobqueue.server.v1_jobs.MOST_AT_ONCE", 2)
    monkeypatch.setattr("headgate.cli.jobqueue.jobs.MOST_AT_ONCE", 2)
    queue.submit(*(f"many-{number}" for number in range(5)), task="many")
    assert headgate("jobqueue", "withdraw", "--task", "many").out == "5 jobs withdrawn\n"
    assert headgate("jobqueue", "requeue", "--all").out == "1 job pending again\n"
    said = headgate("jobqueue", "requeue", "--all", "--withdrawn")
    assert (said.status, said.out) == (0, "5 jobs pending again\n")
    assert headgate("jobqueue", "requeue", "--all", "--json").document == {"requeued": []}


def test_a_job_is_shown_with_its_history(headgate: Command, queue: QueueSite) -> None:
    said = headgate("jobqueue", "show", "dead")
    assert "no GPU" in said.out
    assert "died" in said.out
    document = headgate("jobqueue", "show", "dead", "--json").document
    assert [entry["what"] for entry in document["history"]] == ["submitted", "claimed", "failed", "died"]


def test_a_job_that_is_not_there_is_said_to_be_none(headgate: Command, queue: QueueSite) -> None:
    said = headgate("jobqueue", "show", "no/such job")
    assert said.status != 0
    assert headgate("jobqueue", "show", "nobody").status == 3


def test_dead_jobs_are_listed_and_requeued(headgate: Command, queue: QueueSite) -> None:
    assert "no GPU at all" in headgate("jobqueue", "dead").out
    assert headgate("jobqueue", "requeue").status == 2
    assert "1 job pending again" in headgate("jobqueue", "requeue", "dead").out
    assert headgate("jobqueue", "dead", "--json").document == []
    assert headgate("jobqueue", "requeue", "--all", "--json").document == {"requeued": []}


def test_jobs_are_withdrawn(headgate: Command, queue: QueueSite) -> None:
    assert headgate("jobqueue", "withdraw").status == 2
    assert headgate("jobqueue", "withdraw", "waiting", "unserved", "--reason", "not wanted").status == 0
    assert queue.job("waiting").last_error == "withdrawn: not wanted"


def test_of_jobs_that_are_named_all_are_withdrawn_or_none(headgate: Command, queue: QueueSite) -> None:
    refused = headgate("jobqueue", "withdraw", "waiting", "done", "unserved")
    assert (refused.status, queue.job("waiting").state) == (2, "pending")
    assert "job 'done' is done; only pending and running jobs can be withdrawn" in refused.err
    said = headgate("jobqueue", "withdraw", "waiting", "waiting", "unserved", "--json").document
    assert said == {"withdrawn": ["waiting", "unserved"]}


def test_servers_are_listed_drained_opened_and_removed(headgate: Command, queue: QueueSite) -> None:
    assert "127.0.0.1:9001" in headgate("jobqueue", "resources").out
    assert headgate("jobqueue", "resources", "--pool", "q", "--json").document == []
    assert "p/0 is draining; job running uses it" in headgate("jobqueue", "drain", "p/0", "--reason", "new GPU").out
    assert headgate("jobqueue", "resources", "--json").document[0]["note"] == "new GPU"
    assert headgate("jobqueue", "open", "p/0", "--json").document["state"] == "open"
    refused = headgate("jobqueue", "remove", "p/0")
    assert refused.status != 0
    assert "wrong_state" in refused.err
    assert headgate("jobqueue", "remove", "p/0", "--force").status == 0
    assert headgate("jobqueue", "remove", "p/1", "--json").document == {"removed": "p/1"}
    assert headgate("jobqueue", "drain", "p/7").status == 3


@pytest.mark.parametrize("name", ["p", "/1", "p/", "p/one", "p/-1"])
def test_a_server_has_a_pool_and_a_number(headgate: Command, name: str) -> None:
    assert headgate("jobqueue", "open", "--", name).status == 2


def test_a_server_that_is_not_there_is_said_to_be_none(headgate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.cli.jobqueue import jobs as jobqueue_watching
    from headgate.jobqueue.worker import RetryPolicy

    monkeypatch.setattr(jobqueue_watching, "_PATIENCE", RetryPolicy(patience_s=0))
    said = headgate("jobqueue", "status", "--url", "http://user:secretsecret@127.0.0.1:1")
    assert said.status == 3
    assert "headgate jobqueue serve" in said.err
    assert "http://127.0.0.1:1 " in said.err
    assert "secretsecret" not in said.err
    assert headgate("jobqueue", "status", "--url", "ftp://127.0.0.1").status == 2


def test_an_error_that_looks_like_markup_is_shown_as_it_is(headgate: Command, queue: QueueSite) -> None:
    error = "FileNotFoundError: [/scratch/sim.usd] [bold] \x1b]0;title\x07"
    queue.submit("[red]", task="radio", pool="p", max_attempts=1)
    with queue.client as client:
        claimed = client.claim(ClaimIn(worker="w[/b]", count=9)).jobs
        (lease,) = (c.lease for c in claimed if c.job.id == "[red]")
        client.fail("[red]", FailIn(lease_id=lease.lease_id, epoch=1, error=error))
    for command in (("dead",), ("show", "[red]")):
        said = headgate("jobqueue", *command)
        assert said.status == 0, said.err
        assert "[/scratch/sim.usd] [bold]" in said.out
        assert "[red]" in said.out
        assert "\x1b" not in said.out
