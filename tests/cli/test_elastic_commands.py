"""`headgate elastic status|scale|drain|wake|release|resume`: against a gateway that runs as a process."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.elastic.gateway import GatewayClient
from headgate.simulation.engines import EnginePlan, FakeEngine
from tests.cli.conftest import Command
from tests.cli.elastic_pools import PATIENCE_S, engines, gateway, pool_file, started

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with engines(EnginePlan(), EnginePlan(api="vllm", has_dev_mode=True)) as found:
        path = pool_file(tmp_path_factory.mktemp("pool"), found.urls, stable_window=600, min_workers=2)
        with gateway(path) as served:
            yield served.url


@pytest.fixture
def pool(url: str, headgate: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The workers of a pool that nobody has taken in hand, named by the environment."""
    monkeypatch.setenv("HEADGATE_ELASTIC_URL", url)
    with GatewayClient(url) as client:
        workers = [worker.worker_id for worker in client.status().pool.workers]
        yield workers
        client.resume()
        for worker in workers:
            client.unpin(worker)
        next(now for now in client.watch() if all(each.state == "active" for each in now.pool.workers))


@pytest.mark.slow
def test_status_shows_workers_load_and_why_so_many_are_wanted(headgate: Command, pool: list[str]) -> None:
    said = headgate("elastic", "status")
    assert said.status == 0
    names = [worker.removeprefix("http://") for worker in pool]
    for text in ("chat of fake-model, predictive: 2 of 2 workers awake", *names, "vllm", "active", "0 of 8"):
        assert text in said.out
    for text in ("wanted", "2 workers:", "0 run, 0 wait", "0 served, 0 lost, 0 handed over"):
        assert text in said.out
    assert "kept" not in said.out, "columns that say nothing of any worker are left out"
    document = headgate("elastic", "status", "--json").document
    assert [worker["worker_id"] for worker in document["pool"]["workers"]] == pool
    assert document["admission"]["limit"] == 16


@pytest.mark.slow
def test_a_worker_that_is_drained_sleeps_until_it_is_released(headgate: Command, pool: list[str]) -> None:
    port = pool[1].rpartition(":")[2]
    said = headgate("elastic", "drain", port, "--wait")
    assert said.status == 0
    assert f"{pool[1]} sleeps until `headgate elastic release {port}`" in said.out
    shown = headgate("elastic", "status").out
    assert "asleep" in shown
    assert "1 of 2 workers awake" in shown
    assert "kept by hand" in headgate("elastic", "resume").out
    woken = headgate("elastic", "wake", port, "--wait", "--json")
    assert woken.document["pool"]["workers"][1]["state"] == "active"
    assert woken.document["pool"]["workers"][1]["pin"] == "awake"
    assert f"{pool[1]} follows the load again; it is active now" in headgate("elastic", "release", pool[1]).out
    assert headgate("elastic", "status", "--json").document["pool"]["workers"][1]["pin"] is None


@pytest.mark.slow
def test_a_worker_that_was_repaired_is_woken_at_once_and_no_old_failure_is_told(
    headgate: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engines(EnginePlan(), EnginePlan()) as found:
        path = pool_file(tmp_path, found.urls, failed_retry=1000, engine_attempts=1)
        with gateway(path) as served:
            monkeypatch.setenv("HEADGATE_ELASTIC_URL", served.url)
            assert headgate("elastic", "drain", found.urls[1], "--wait").status == 0
            found.do(lambda engine: engine.fail_next(100, 500), 1)
            for _ in range(2):
                said = headgate("elastic", "wake", found.urls[1], "--wait")
                assert (said.status, "has failed: " in said.err) == (3, True)
            found.do(FakeEngine.let_go, 1)
            assert headgate("elastic", "wake", found.urls[1], "--wait").status == 0


@pytest.mark.slow
def test_the_number_of_workers_is_an_operators_until_it_is_given_back(headgate: Command, pool: list[str]) -> None:
    assert "chat is to have 2 workers awake whatever the load" in headgate("elastic", "scale", "2").out
    assert "an operator wants 2" in headgate("elastic", "status").out
    assert "predictive decides" in headgate("elastic", "scale", "auto").out
    assert "an operator" not in headgate("elastic", "status").out


@pytest.mark.slow
def test_all_workers_are_awake_for_a_while(headgate: Command, pool: list[str]) -> None:
    said = headgate("elastic", "wake", "--all", "--for", "60", "--wait")
    assert said.status == 0
    assert "none is put to sleep for 60 s; 2 of 2 take requests now" in said.out
    assert "an operator keeps all workers awake" in headgate("elastic", "status").out
    assert "follows its load again" in headgate("elastic", "resume").out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("drain", "nowhere"), "no worker is 'nowhere'"),
        (("drain", "http"), "'http' is part of the names of"),
        (("scale", "3"), "chat has 2 workers, and 3 of them cannot be awake"),
        (("scale", "1"), "between min_workers 2 and max_workers 8 (got 1)"),
        (("scale", "0"), "at least one worker awake (got 0)"),
        (("scale", "many"), "a whole number of workers, or `auto` (got 'many')"),
        (("wake",), "neither a worker nor --all"),
        (("wake", "1", "--all"), "and not both"),
        (("wake", "1", "--for", "5"), "--for goes with --all"),
        (("wake", "--all", "--for", "0"), "--for must be above 0 and at most 604800 seconds (got 0)"),
        (("status", "--watch", "--json"), "--watch shows tables"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_refused_with_the_rule(
    headgate: Command, pool: list[str], line: tuple[str, ...], says: str
) -> None:
    said = headgate("elastic", *line)
    assert said.status == 2
    told = f"{said.err}{said.out}"
    assert says in " ".join(told.split())


@pytest.mark.parametrize(
    "line", [("status",), ("scale", "2"), ("drain", "x"), ("wake", "x"), ("release", "x"), ("resume",)]
)
def test_where_no_gateway_answers_a_sentence_says_so(headgate: Command, line: tuple[str, ...]) -> None:
    said = headgate("elastic", *line, "--url", NOBODY)
    assert said.status == 3
    assert f"No elastic gateway answers at {NOBODY}" in said.err
    assert "headgate elastic serve" in said.err
    assert headgate("elastic", *line, "--url", NOBODY, "--json").document["error"]["code"] == "gateway_unreachable"


def test_what_answers_and_is_no_gateway_is_told_apart(headgate: Command) -> None:
    with engines(EnginePlan()) as found:
        said = headgate("elastic", "status", "--url", found.urls[0])
    assert said.status == 3
    assert "is not an elastic gateway" in said.err


def test_an_address_without_http_is_refused(headgate: Command) -> None:
    said = headgate("elastic", "status", "--url", "localhost:8080")
    assert said.status == 2
    assert "must be http://host:port (got 'localhost:8080')" in said.err


@pytest.mark.long
@pytest.mark.slow
def test_a_watch_follows_the_pool_until_ctrl_c(url: str, pool: list[str]) -> None:
    terminal, other_end = pty.openpty()
    with started("elastic", "status", "--watch", "--url", url, stdout=other_end, stderr=subprocess.DEVNULL) as watch:
        os.close(other_end)
        _read_until(terminal, b"2 of 2 workers awake")
        with GatewayClient(url) as client:
            client.drain(pool[0])
        _read_until(terminal, b"1 of 2 workers awake")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(PATIENCE_S) == 0
    os.close(terminal)


def _read_until(terminal: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        part = os.read(terminal, 65_536)
        assert part, "the terminal was closed"
        seen += part
