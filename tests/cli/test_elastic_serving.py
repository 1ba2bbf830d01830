"""`headgate elastic serve|check|fake-engine|demo`: what is served, what is refused, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from headgate.elastic.gateway import GatewayClient
from headgate.simulation.engines import EnginePlan
from tests.cli.conftest import Command
from tests.cli.elastic_pools import PATIENCE_S, engines, gateway, pool_file, started

NOBODY = "http://127.0.0.1:9"
CHAT = {"model": "fake-model", "messages": [{"role": "user", "content": "hello"}]}


def test_engines_tell_what_they_are_before_a_pool_takes_them(headgate: Command) -> None:
    with engines(EnginePlan(slots=3), EnginePlan(api="vllm")) as found:
        said = headgate("elastic", "check", *found.urls)
        document = headgate("elastic", "check", *found.urls, "--json").document
    assert said.status == 0
    for text in ("2 of 2 engines can be workers", *found.urls, "sglang", "vllm", "fake-model", "awake", "0 running"):
        assert text in said.out
    assert [each["kind"] for each in document["engines"]] == ["sglang", "vllm"]
    assert document["engines"][0]["facts"]["slots"] == 3
    assert all(each["is_usable"] and each["error"] is None for each in document["engines"])


def test_what_keeps_an_engine_from_being_a_worker_is_said(headgate: Command) -> None:
    with engines(EnginePlan(has_memory_saver=False), EnginePlan()) as found:
        said = headgate("elastic", "check", *found.urls, NOBODY)
        wrong = headgate("elastic", "check", found.urls[1], "--kind", "vllm")
    assert said.status == 4
    text = " ".join(said.out.split())
    assert "1 of 3 engines can be workers" in text
    assert f"{found.urls[0]} (sglang) cannot be a worker: " in text
    assert "--enable-memory-saver" in text
    assert f"{NOBODY} cannot be a worker: " in text
    assert "Start it first, or correct its address" in text
    assert wrong.status == 4
    assert "does not speak vLLM's API" in " ".join(wrong.out.split())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ((), "no engine is named"),
        (("localhost:30000",), "an engine's url must be http://host:port"),
        (
            (NOBODY, "--api-key-env", "NOT_SET_ANYWHERE"),
            "--api-key-env names the environment variable NOT_SET_ANYWHERE, which is not set",
        ),
    ],
    ids=["nothing", "no address", "no key"],
)
def test_a_check_of_nothing_is_refused(headgate: Command, line: tuple[str, ...], says: str) -> None:
    said = headgate("elastic", "check", *line)
    assert said.status == 2
    assert says in " ".join(said.err.split())


def test_a_pools_file_is_checked_without_being_served(headgate: Command, tmp_path: Path) -> None:
    with engines(EnginePlan(), EnginePlan(model="other-model")) as found:
        path = pool_file(tmp_path, found.urls)
        assert headgate("elastic", "serve", str(path), "--check").status == 0
        document = json.loads(path.read_text())
        document["pool"]["model"] = "fake-model"
        path.write_text(json.dumps(document))
        said = headgate("elastic", "serve", str(path), "--check")
        changed = [call for engine in found.served for call in engine.calls if "release" in call or "flush" in call]
    assert said.status == 4
    assert f"{found.urls[1]} serves other-model, and the pool's model is 'fake-model'" in " ".join(said.out.split())
    assert changed == [], "a check changes nothing"


def test_a_check_finds_what_serving_the_file_would_refuse(headgate: Command, tmp_path: Path) -> None:
    with engines(EnginePlan()) as found:
        path = pool_file(tmp_path, found.urls)
        document = json.loads(path.read_text())
        document["gateway"] = {"host": "0.0.0.0"}
        path.write_text(json.dumps(document))
        said = headgate("elastic", "serve", str(path), "--check")
    assert said.status == 2
    assert "without a token a gateway may only listen on a loopback address" in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("written", "more", "says"),
    [
        (None, (), "cannot be read: No such file or directory"),
        ("pool: {engnes: []}", (), "there is no setting pool.engnes; did you mean 'engines'?"),
        ("pool: [", (), "cannot be read: line 1, column 8"),
        (
            "pool: {engines: [http://127.0.0.1:9]}",
            ("--port", "99999"),
            "--port must be between 0 and 65535 (got 99999)",
        ),
    ],
    ids=["missing", "misspelt", "no YAML", "port"],
)
def test_a_file_that_cannot_be_served_is_refused(
    headgate: Command, tmp_path: Path, written: str | None, more: tuple[str, ...], says: str
) -> None:
    path = tmp_path / "pool.yaml"
    if written is not None:
        path.write_text(written)
    said = headgate("elastic", "serve", str(path), *more)
    assert said.status == 2
    assert says in " ".join(said.err.split())


def test_a_pool_whose_engine_is_not_there_says_how_to_go_on(headgate: Command, tmp_path: Path) -> None:
    said = headgate("elastic", "serve", str(pool_file(tmp_path, [NOBODY])))
    assert said.status == 3
    assert NOBODY in said.err
    assert "Start the engine first or correct its address" in said.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, id="SIGTERM"), pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.long)],
)
def test_requests_in_flight_are_answered_before_a_gateway_ends(tmp_path: Path, number: signal.Signals) -> None:
    answers: list[httpx.Response] = []
    with engines(EnginePlan()) as found, gateway(pool_file(tmp_path, found.urls)) as served:
        found.do(lambda engine: engine.hold())
        asking = threading.Thread(
            target=lambda: answers.append(
                httpx.post(f"{served.url}/v1/chat/completions", json=CHAT, timeout=PATIENCE_S, trust_env=False)
            )
        )
        asking.start()
        found.run(found.served[0].until(lambda: bool(found.served[0].running)))
        served.process.send_signal(number)
        with GatewayClient(served.url) as client:
            next(now for now in client.watch(1.0) if now.is_draining)
        refused = httpx.post(f"{served.url}/v1/chat/completions", json=CHAT, trust_env=False)
        found.do(lambda engine: engine.finish())
        assert served.process.wait(PATIENCE_S) == 0
        asking.join(PATIENCE_S)
    assert refused.status_code == 503
    assert answers[0].status_code == 200
    assert answers[0].json()["choices"][0]["finish_reason"] in {"stop", "length"}


@pytest.mark.long
@pytest.mark.slow
def test_a_second_signal_ends_a_gateway_at_once(tmp_path: Path) -> None:
    with engines(EnginePlan()) as found, gateway(pool_file(tmp_path, found.urls)) as served:
        found.do(lambda engine: engine.hold())
        asking = threading.Thread(target=_ask_in_vain, args=(served.url,))
        asking.start()
        found.run(found.served[0].until(lambda: bool(found.served[0].running)))
        served.process.send_signal(signal.SIGTERM)
        with GatewayClient(served.url) as client:
            next(now for now in client.watch(1.0) if now.is_draining)
        assert served.stop() == 0
        asking.join(PATIENCE_S)


def _ask_in_vain(url: str) -> None:
    try:
        httpx.post(f"{url}/v1/chat/completions", json=CHAT, timeout=PATIENCE_S, trust_env=False)
    except httpx.HTTPError:
        return


@pytest.mark.long
@pytest.mark.slow
def test_a_signal_while_engines_are_asked_ends_it(tmp_path: Path) -> None:
    with engines(EnginePlan()) as found:
        found.do(lambda engine: engine.hang("/server_info"))
        with started("elastic", "serve", str(pool_file(tmp_path, found.urls)), stderr=subprocess.DEVNULL) as process:
            found.run(found.served[0].until_called("GET /server_info"))
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 130
        found.do(lambda engine: engine.let_go())


@pytest.mark.slow
def test_an_engine_serves_one_pool_only(headgate: Command, tmp_path: Path) -> None:
    with engines(EnginePlan()) as found:
        path = pool_file(tmp_path, found.urls)
        with gateway(path):
            said = headgate("elastic", "serve", str(path))
    assert said.status == 2
    assert "already belongs to pool 'chat'" in said.err


@pytest.mark.long
@pytest.mark.slow
def test_on_a_terminal_a_table_stands_below_the_log(tmp_path: Path) -> None:
    terminal, other_end = pty.openpty()
    with engines(EnginePlan()) as found:
        path = pool_file(tmp_path, found.urls)
        with started("elastic", "serve", str(path), stdout=other_end, stderr=other_end) as process:
            os.close(other_end)
            shown = b""
            while b"Pool chat at http://127.0.0.1:" not in shown or b"worker-seconds awake" not in shown:
                shown += os.read(terminal, 65_536)
            process.send_signal(signal.SIGINT)
            while b"Stopping: what is in flight" not in shown:
                shown += os.read(terminal, 65_536)
            assert process.wait(PATIENCE_S) == 0
    os.close(terminal)
    assert b"chat of fake-model, predictive: 1 of 1 workers awake" in shown


@pytest.mark.slow
def test_a_simulated_engine_says_that_it_is_no_language_model(headgate: Command) -> None:
    line = ("elastic", "fake-engine", "--port", "0", "--kind", "vllm")
    with started(*line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        said = headgate("elastic", "check", url)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert said.status == 0
    assert "vllm" in said.out
    assert process.returncode == 0
    assert b"no language model" in told


def test_an_impossible_engine_is_refused(headgate: Command) -> None:
    said = headgate("elastic", "fake-engine", "--slots", "0")
    assert said.status == 2
    assert "slots must be >= 1 (got 0)" in said.err


@pytest.mark.slow
def test_the_demo_wakes_workers_for_its_burst_and_loses_nothing(headgate: Command) -> None:
    said = headgate("elastic", "demo", "--duration", "5", "--json")
    assert said.status == 0
    assert said.document["failed"] == 0
    assert said.document["answered"] > 10
    status = said.document["status"]
    assert sum(status["pool"]["times"]["start"]["counts"]) >= 1, "a worker was woken"
    assert status["pool"]["counts"]["lost"] == 0
    assert said.document["awake_worker_s"] < said.document["always_awake_worker_s"]


def test_a_demo_without_time_is_refused(headgate: Command) -> None:
    said = headgate("elastic", "demo", "--duration", "1")
    assert said.status == 2
    assert "--duration must be at least 5" in said.err
