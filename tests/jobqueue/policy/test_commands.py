"""`headgate jobqueue policy-server` and `evaluate`, as people and the command runner call them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from cyclopts import App

from headgate.cli.jobqueue.policy import evaluate, policy_server
from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy import (
    PolicyClient,
    PolicyLease,
    PolicyRefusedError,
    PolicyServer,
    PolicyUnreachableError,
    ScriptedPolicy,
    SyncPolicyClient,
    load_simulation,
    run_episode,
)
from headgate.jobqueue.worker import ReservedServer

Run = Callable[..., int]

SERVE = """
from cyclopts import App
from headgate.cli.jobqueue.policy import policy_server
app = App()
app.default(policy_server)
app()
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `evaluate` with these arguments, without variables of a command runner."""
    for name in (
        "JOB_FILE",
        "RESOURCE_HOST",
        "RESOURCE_PORT",
        "RESOURCE_LEASE",
        "RESOURCE_EPOCH",
        "RESULT_FILE",
        "WORKER_SOCKET",
    ):
        monkeypatch.delenv(f"HEADGATE_{name}", raising=False)
    app = App(result_action="return_value", exit_on_error=False)
    app.command(evaluate)
    app.command(policy_server)

    def call(*arguments: str) -> int:
        status: int = app(["evaluate", *arguments])
        return status

    return call


@pytest.fixture
async def server() -> Any:
    async with PolicyServer(ScriptedPolicy()) as serving:
        yield serving


async def test_an_evaluation_writes_its_result(
    run: Run, server: PolicyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "metrics" / "tidy_3.json"
    arguments = ["--task", "tidy", "--instance", "3", "--host", "127.0.0.1", "--port", str(server.port)]
    assert await asyncio.to_thread(run, *arguments, "--result", str(place)) == 0
    expected = {"task": "tidy", "instance": "3", **run_episode(ScriptedPolicy(), load_simulation("tidy", "3"))}
    assert json.loads(place.read_text()) == expected
    assert list(place.parent.iterdir()) == [place]
    assert "tidy 3: q_score 1.000 (success)" in capsys.readouterr().out


async def test_a_result_is_printed_as_json_when_asked(
    run: Run, server: PolicyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--task", "tidy", "--instance", "3", "--host", "127.0.0.1", "--port", str(server.port), "--json"]
    await asyncio.to_thread(run, *arguments)
    assert json.loads(capsys.readouterr().out)["q_score"] == 1.0


@pytest.mark.parametrize(
    "job",
    [
        {"id": "1", "task": "tidy", "instance": "3", "payload": {"team": "a"}},
        {"job": {"id": "1", "task": "tidy", "instance": "3", "payload": {}}, "lease": {"epoch": 1}},
        {"id": 1, "payload": {"task": "tidy", "instance_basename": "3"}, "resource_type": "a_1"},
        {"id": "1", "task": "tidy", "instance": "", "payload": {"task": "other", "instance_basename": "3"}},
    ],
    ids=["job", "claim", "seed", "both"],
)
async def test_the_command_runner_says_everything_by_its_variables(
    run: Run, server: PolicyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: dict[str, Any]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(job))
    said = {
        "JOB_FILE": tmp_path / "job.json",
        "RESULT_FILE": tmp_path / "result.json",
        "RESOURCE_HOST": "127.0.0.1",
        "RESOURCE_PORT": server.port,
    }
    for name, value in said.items():
        monkeypatch.setenv(f"HEADGATE_{name}", str(value))
    assert await asyncio.to_thread(run) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["task"], result["instance"], result["q_score"]) == ("tidy", "3", 1.0)


async def test_a_reservation_in_the_environment_fences_the_server(
    run: Run, server: PolicyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved = {"HOST": "127.0.0.1", "PORT": str(server.port), "LEASE": "c0ffee", "EPOCH": "7"}
    for name, value in reserved.items():
        monkeypatch.setenv(f"HEADGATE_RESOURCE_{name}", value)
    await asyncio.to_thread(run, "--task", "tidy")
    older = SyncPolicyClient("127.0.0.1", server.port, lease=PolicyLease("bead", 6))
    with pytest.raises(PolicyRefusedError, match=r"epoch 6 .* is not newer than epoch 7"):
        await asyncio.to_thread(older.connect)
    monkeypatch.setenv("HEADGATE_RESOURCE_EPOCH", "seven")
    with pytest.raises(InvalidInputError, match="HEADGATE_RESOURCE_EPOCH"):
        run("--task", "tidy")


async def test_another_server_than_the_reserved_one_is_not_told_of_the_reservation(
    run: Run, server: PolicyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved = {"HOST": "gpu-7.example.com", "PORT": "1", "LEASE": "c0ffee", "EPOCH": "7"}
    for name, value in reserved.items():
        monkeypatch.setenv(f"HEADGATE_RESOURCE_{name}", value)
    await asyncio.to_thread(run, "--task", "tidy", "--host", "127.0.0.1", "--port", str(server.port))
    async with PolicyClient("127.0.0.1", server.port, lease=PolicyLease("bead", 1)) as client:
        assert client.metadata["policy"] == "baseline-scripted"


async def test_a_server_is_reserved_after_the_simulator_is_loaded(
    run: Run, server: PolicyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    def load(task: str, instance: str) -> Any:
        happened.append("loaded")
        return load_simulation(task, instance)

    async def reserve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        happened.append(json.loads(await reader.readline())["do"])
        free = ReservedServer("127.0.0.1", server.port, 0, "pool/0", "c0ffee", 7)
        writer.write(json.dumps({"server": asdict(free)}).encode() + b"\n")
        await writer.drain()
        writer.close()

    monkeypatch.setattr("headgate.cli.jobqueue.policy.load_simulation", load)
    (tmp_path / "job.json").write_text(json.dumps({"id": "1", "task": "tidy", "instance": "3", "payload": {}}))
    said = {"JOB_FILE": "job.json", "RESULT_FILE": "result.json", "WORKER_SOCKET": "s"}
    for name, value in said.items():
        monkeypatch.setenv(f"HEADGATE_{name}", str(tmp_path / value))
    async with await asyncio.start_unix_server(reserve, tmp_path / "s"):
        assert await asyncio.to_thread(run) == 0
    assert happened == ["loaded", "reserve"]
    assert json.loads((tmp_path / "result.json").read_text())["q_score"] == 1.0
    with pytest.raises(PolicyRefusedError, match=r"epoch 6 .* is not newer than epoch 7"):
        await PolicyClient("127.0.0.1", server.port, lease=PolicyLease("bead", 6)).connect()


def test_a_bad_host_is_a_sentence_and_exit_status_3(run: Run, tmp_path: Path, unused_tcp_port: int) -> None:
    place = tmp_path / "result.json"
    with pytest.raises(PolicyUnreachableError, match="no policy server answers at ws://127") as caught:
        run("--task", "tidy", "--host", "127.0.0.1", "--port", str(unused_tcp_port), "--result", str(place))
    assert caught.value.exit_code == 3
    assert not place.exists()


def test_what_is_missing_is_said(run: Run, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no task is named"):
        run("--host", "127.0.0.1")
    with pytest.raises(InvalidInputError, match="no policy server is named"):
        run("--task", "tidy")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        run("--job-file", str(tmp_path / "none.json"))
    (tmp_path / "job.json").write_text("[1]")
    with pytest.raises(InvalidInputError, match="must hold a JSON object"):
        run("--job-file", str(tmp_path / "job.json"))
    (tmp_path / "job.json").write_text('{"id": "1", "payload": {}}')
    with pytest.raises(InvalidInputError, match=r"the job in .* has none"):
        run("--job-file", str(tmp_path / "job.json"))
    with pytest.raises(InvalidInputError, match="must be > 0"):
        run("--task", "tidy", "--host", "127.0.0.1", "--max-steps", "0")


async def test_a_result_that_cannot_be_written_leaves_what_was_there(
    run: Run, server: PolicyServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("before")
    arguments = ["--task", "tidy", "--host", "127.0.0.1", "--port", str(server.port)]
    with pytest.raises(InvalidInputError, match="cannot be written"):
        await asyncio.to_thread(run, *arguments, "--result", str(tmp_path / "file" / "result.json"))
    assert (tmp_path / "file").read_text() == "before"


@pytest.fixture
def served() -> Iterator[subprocess.Popen[str]]:
    """A real process with the baseline, on a free port."""
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    arguments = [sys.executable, "-c", SERVE, "--policy", "random", "--port", "0", "--delay-ms", "1"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_is_and_ends_by_a_signal_with_its_episode(
    served: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert served.stdout is not None
    line = served.stdout.readline()
    found = re.search(r"baseline-random \(a baseline.*ws://127\.0\.0\.1:(\d+), health at (\S+)", line)
    assert found is not None, line
    assert httpx.get(found[2]).text == "OK\n"
    with SyncPolicyClient("127.0.0.1", int(found[1])) as client:
        assert client.metadata["policy"] == "baseline-random"
        client.act({})
        served.send_signal(number)
        client.act({})
    assert served.wait(timeout=60) == 0
