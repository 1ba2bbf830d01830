"""The same commands against a server that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.jobqueue import wire
from tests.jobqueue.generator.conftest import Command
from tests.jobqueue.generator.site import Site, server
from tests.jobqueue.worker.queue_site import QueueSite, queue_site

HEADER = "team,task,sr_q_score,eval_q_score,finished_eval,started_eval\n"


@pytest.fixture
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueSite]:
    with queue_site(tmp_path_factory.mktemp("queue")) as queue:
        yield queue


@pytest.fixture
def run(jobqueue: Command, queue: QueueSite, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("HEADGATE_JOBQUEUE_URL", queue.url)
    return jobqueue


def test_what_is_generated_can_be_sent_as_often_as_one_likes(run: Command, queue: QueueSite, site: Site) -> None:
    first = run("generate", "--url", queue.url, "--json").document
    assert (first["sent"], first["files"]) == (
        {"added": 2, "existing": 0, "servers": 1, "unserved": 0, "others": []}, []
    )  # fmt: skip
    site.add_instances("radio", 3)
    site.serve(alpha=[server("alpha-1"), server("alpha-2", compatible_task="radio")])
    assert "jobs: 1 added, 2 there already; policy servers: 2 registered" in run("generate", "--url", queue.url).err
    assert not (site.root / "jobs.json").exists()
    with queue.client as client:
        assert [job.id for job in client.all_jobs()] == ["alpha.radio.1", "alpha.radio.2", "alpha.radio.3"]
        assert [one.resource_id for one in client.resources()] == ["alpha/0", "alpha/1"]


def test_servers_that_have_left_the_file_are_named(run: Command, queue: QueueSite, site: Site) -> None:
    queue.register("beta", servers=1)
    site.serve(alpha=[server("alpha-1"), server("alpha-2")])
    assert "not in the file" not in run("generate", "--url", queue.url).err
    site.serve(alpha=[server("alpha-2")])
    assert run("generate", "--url", queue.url, "--json").document["sent"]["others"] == ["alpha/0"]
    assert (
        "not in the file, and still assigned until `jobqueue remove`: alpha/0\n"
        in run("generate", "--url", queue.url).err
    )


def test_files_make_the_journey_through_a_server(run: Command, queue: QueueSite, site: Site) -> None:
    run("generate", "--legacy-groups")
    path = site.root / "jobs.json"
    jobs = json.loads(path.read_text())
    jobs[0]["status"] = "done"
    path.write_text(json.dumps(jobs))
    said = run("import")
    assert "jobs: 1 added" in said.err
    assert "1 done job left out" in said.err
    assert run("import", "--json").document["existing"] == 1
    assert run("export", "--jobs-file", "j.json", "--resources-file", "r.json").status == 0
    (written,) = json.loads((site.root / "j.json").read_text())
    assert written | jobs[1] == written
    assert json.loads((site.root / "r.json").read_text()) == json.loads((site.root / "resources.json").read_text())


def test_a_job_with_other_contents_is_refused_by_its_id(run: Command, queue: QueueSite, site: Site) -> None:
    queue.submit("0", team="other")
    run("generate")
    said = run("import")
    assert said.status == 2
    assert "job '0' exists with other contents" in " ".join(said.err.split())


def test_results_are_those_of_the_jobs_of_a_server(run: Command, queue: QueueSite) -> None:
    run("generate", "--url", queue.url)
    assert run("results").out == HEADER + "alpha,radio,0.5,,0,0\n"
    with queue.client as client:
        first, _ = client.claim(wire.ClaimIn(worker="w", count=2)).jobs
        result = {"q_score": {"final": 0.25}}
        body = wire.CompleteIn(lease_id=first.lease.lease_id, epoch=first.lease.epoch, result=result)
        client.complete(first.job.id, body)
    assert run("results").out == HEADER + "alpha,radio,0.5,0.25,1,2\n"


def test_a_server_that_is_not_there_is_told(jobqueue: Command, site: Site, tmp_path: Path) -> None:
    jobqueue("generate")
    said = jobqueue("import", "--url", "ftp://example.com")
    assert said.status == 2
    assert "must be a URL with http or https" in " ".join(said.err.split())
