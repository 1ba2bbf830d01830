"""Serving as a process: it starts, stops, and starts again where it was."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.core.audit import audit_entries
from headgate.core.errors import InvalidInputError, InvalidSettingError
from headgate.jobqueue.errors import JobConflictError, StoreInUseError
from headgate.jobqueue.server import ServerSettings, read_imports, running_server
from tests.jobqueue.server.conftest import JOB, SERVER, in_line

_A = {"id": "1", "team": "a", "task": "t"}


@contextmanager
def _process(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve `folder`'s queue in a process of its own; yield it and its URL once it listens."""
    command = [sys.executable, "-m", "headgate.cli", "jobqueue", "serve", "--port", "0", *flags]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HEADGATE_")}
    environ["HEADGATE_JOBQUEUE_DATABASE"] = f"sqlite:///{folder}/queue.db"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=folder
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.match(r"Job queue at (http://\S+)", line)
            assert found, (line, process.poll())
            yield process, found[1]
        finally:
            process.kill()


def _stopped(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    return errors


def _post(url: str, path: str, body: Any) -> Any:
    answer = httpx.post(url + path, json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
def test_a_worker_goes_on_after_a_restart_and_a_kill_by_whatever_signal_it_was_stopped(tmp_path: Path) -> None:
    with _process(tmp_path) as (process, url):
        _post(url, "/v1/resources", {"resources": [SERVER]})
        _post(url, "/v1/jobs", {"jobs": [JOB]})
        (one,) = _post(url, "/v1/claims", {"worker": "w"})["jobs"]
        lease = {"lease_id": one["lease"]["lease_id"], "epoch": 1}
        held = _post(url, "/v1/reservations", {"job_id": "17", **lease})["reservation"]
        assert "Traceback" not in _stopped(process, signal.SIGTERM)
    with _process(tmp_path) as (process, url):
        (renewal,) = _post(url, "/v1/leases/renew", {"leases": [{"job_id": "17", **lease}]})["renewals"]
        assert (renewal["status"], renewal["reservation"]) == ("renewed", held)
        assert _post(url, "/v1/jobs/17/complete", lease)["status"] == "done"
        _post(url, "/v1/jobs", {"jobs": [_A]})
        (one,) = _post(url, "/v1/claims", {"worker": "w"})["jobs"]
        process.kill()
    with _process(tmp_path) as (process, url):
        lease = {"lease_id": one["lease"]["lease_id"], "epoch": 1}
        assert _post(url, "/v1/jobs/1/complete", lease)["status"] == "done"
        errors = _stopped(process, signal.SIGINT)
        assert "Job 1 finished by w" in errors
        assert "Traceback" not in errors


@pytest.mark.long
@pytest.mark.slow
def test_files_of_the_seed_are_taken_in_at_the_start(tmp_path: Path) -> None:
    jobs = [{"id": 3, "payload": {"team_slug": "a", "task": "t"}, "resource_type": "a_1"}]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    (tmp_path / "resources.json").write_text(json.dumps({"a_1": [{"host": "h", "port": 1}]}))
    flags = ("--import", "jobs.json", "--import", "resources.json")
    for number in range(2):
        with _process(tmp_path, *flags) as (process, url):
            told = httpx.get(f"{url}/v1/statistics").json()
            assert (told["jobs"]["pending"], told["pools"][0]["servers"]) == (1, 1)
            if number == 1:
                job = httpx.get(f"{url}/job", params={"worker": "w"}).json()["job"]
                assert (job["id"], job["resource_type"]) == ("3", "a_1")
            _stopped(process)


async def test_a_stop_answers_those_who_wait(live_settings: ServerSettings) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        async with running_server(live_settings) as server:
            body = {"worker": "w", "wait_s": 300}
            waiting = asyncio.create_task(http.post(f"{server.url}/v1/claims", json=body))
            await in_line(server.service.writer, claims=1)
        assert (await waiting).json() == {"jobs": []}
        with pytest.raises(httpx.ConnectError):
            await http.get(f"{server.url}/health")


async def test_a_database_is_served_once(live_settings: ServerSettings) -> None:
    async with running_server(live_settings):
        with pytest.raises(StoreInUseError):
            async with running_server(live_settings):
                pass


async def test_beyond_this_machine_nothing_is_served_without_tokens(live_settings: ServerSettings) -> None:
    open_to_all = live_settings.model_copy(update={"host": "0.0.0.0"})
    with pytest.raises(InvalidSettingError, match="headgate jobqueue token create"):
        async with running_server(open_to_all):
            pass
    async with running_server(live_settings):  # it was given up properly
        pass


async def test_a_port_in_use_is_said(live_settings: ServerSettings, tmp_path: Path) -> None:
    async with running_server(live_settings) as server:
        port = int(server.url.rpartition(":")[2])
        second = live_settings.model_copy(update={"port": port, "database": "memory:"})
        with pytest.raises(InvalidSettingError, match=f"port {port} of 127.0.0.1 is in use"):
            async with running_server(second):
                pass


async def test_an_error_within_the_context_stays_what_it_is(live_settings: ServerSettings) -> None:
    with pytest.raises(ZeroDivisionError):
        async with running_server(live_settings):
            raise ZeroDivisionError


async def test_imports_that_contradict_what_is_there_stop_the_start(
    live_settings: ServerSettings, tmp_path: Path, audit_file: Path
) -> None:
    def imports(task: str) -> Any:
        (tmp_path / "jobs.json").write_text(
            json.dumps([{"id": "x", "payload": {"team_slug": "a", "task": task}, "resource_type": "a"}])
        )
        return read_imports([tmp_path / "jobs.json"])

    async with running_server(live_settings, imports("t")):
        pass
    with pytest.raises(JobConflictError):
        async with running_server(live_settings, imports("u")):
            pass
    assert [(one.what, one.after) for one in audit_entries()] == [("jobqueue import", "new jobs: 1; policy servers: 0")]


def test_two_files_of_a_kind_are_refused(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text("[]")
    with pytest.raises(InvalidInputError, match=r"two\.json is a second file of jobs"):
        read_imports([tmp_path / "one.json", tmp_path / "two.json"])


async def test_a_queue_in_postgresql_is_served_alike(postgres_url: str, live_settings: ServerSettings) -> None:
    settings = live_settings.model_copy(update={"database": postgres_url})
    async with httpx.AsyncClient() as http:
        async with running_server(settings) as server:
            jobs = [{**_A, "id": str(number), "payload": {"text": "ø\u0001"}} for number in range(3)]
            (await http.post(f"{server.url}/v1/jobs", json={"jobs": jobs})).raise_for_status()
            claimed = (await http.post(f"{server.url}/v1/claims", json={"worker": "w", "count": 2})).json()["jobs"]
            error = {"error": "a\u0000b", "lease_id": claimed[0]["lease"]["lease_id"], "epoch": 1}
            assert (await http.post(f"{server.url}/v1/jobs/0/fail", json=error)).status_code == 200
        async with running_server(settings) as server:
            lease = {"lease_id": claimed[1]["lease"]["lease_id"], "epoch": 1}
            done = await http.post(f"{server.url}/v1/jobs/1/complete", json=lease, headers={"Idempotency-Key": "k"})
            assert done.json()["status"] == "done"
            listed = (await http.get(f"{server.url}/v1/jobs")).json()["jobs"]
            assert [job["state"] for job in listed] == ["pending", "done", "pending"]
            assert (await http.get(f"{server.url}/v1/results")).json()["results"][0]["job"]["id"] == "1"
