"""The Prefect servers that Headgate starts: private ones, and the user's own."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_HOME, get_current_settings, temporary_settings

from headgate import orchestration
from headgate.cli import main
from headgate.core import errors
from headgate.orchestration import private_server, start_server
from headgate.orchestration.deployments import POOL, QUEUES, ensure_pool


def _server_settings(prefect: object) -> dict[str, object]:
    return httpx.get(f"{prefect.api_url}/admin/settings", trust_env=False).raise_for_status().json()  # type: ignore[attr-defined]


def test_it_phones_nobody_and_advertises_nothing(prefect: object) -> None:
    settings = _server_settings(prefect)
    assert settings["server"]["analytics_enabled"] is False
    assert settings["server"]["ui"]["show_promotional_content"] is False
    assert prefect.environ()["DO_NOT_TRACK"] == "1"  # type: ignore[attr-defined]


def test_its_leases_survive_a_restart(prefect: object) -> None:
    storage = _server_settings(prefect)["server"]["concurrency"]["lease_storage"]
    assert storage == "prefect.server.concurrency.lease_storage.filesystem"


def test_all_of_its_state_is_in_its_folder(prefect: object) -> None:
    assert _server_settings(prefect)["home"] == str(prefect.folder)  # type: ignore[attr-defined]
    assert (prefect.folder / "prefect.db").exists()  # type: ignore[attr-defined]


def test_its_clients_know_no_other_server_and_start_none(prefect: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "of-another-server")
    monkeypatch.setenv("PREFECT_PROFILE", "other")
    environ = prefect.environ()  # type: ignore[attr-defined]
    assert environ["PREFECT_API_URL"] == prefect.api_url  # type: ignore[attr-defined]
    assert "PREFECT_API_KEY" not in environ
    assert "PREFECT_PROFILE" not in environ
    assert environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] == "false"


async def test_this_process_is_its_client_only_within_the_context(prefect_server: object) -> None:
    before = get_current_settings().api.url
    with prefect_server.as_client():  # type: ignore[attr-defined]
        async with get_client() as client:
            assert str(client.api_url).rstrip("/") == prefect_server.api_url  # type: ignore[attr-defined]
    assert get_current_settings().api.url == before


def test_the_page_of_the_ui_is_served(prefect: object) -> None:
    answer = httpx.get(f"{prefect.url}/v2/dashboard", headers={"Accept": "text/html"}, trust_env=False)  # type: ignore[attr-defined]
    assert answer.status_code == 200
    assert "<html" in answer.text


@pytest.mark.long  # `test_sqlite_cursors.py` shows what it comes to without a server
async def test_names_that_are_taken_do_not_stop_it_for_those_who_write(prefect: object) -> None:
    async def saved(client: httpx.AsyncClient, name: str) -> int:
        return (await client.post("/variables/", json={"name": name, "value": 1})).status_code

    async def written(client: httpx.AsyncClient, writer: int) -> set[int]:
        return {await saved(client, f"of_{writer}_{number}") for number in range(40)}

    async def refused(client: httpx.AsyncClient) -> set[int]:
        return {await saved(client, "taken") for _ in range(40)}

    async with httpx.AsyncClient(base_url=prefect.api_url, timeout=120, trust_env=False) as client:  # type: ignore[attr-defined]
        assert await saved(client, "taken") == 201
        answers = await asyncio.gather(*(written(client, n) for n in range(6)), *(refused(client) for _ in range(6)))
    assert answers == [{201}] * 6 + [{409}] * 6


async def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(errors.InvalidInputError, match=f"port {port} cannot be listened on"):
            async with private_server(tmp_path, port=port):
                pass


@pytest.mark.long
async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "prefect.db").mkdir()
    with pytest.raises(errors.OrchestratorUnreachableError, match="the Prefect server ended") as raised:
        async with private_server(tmp_path):
            pass
    assert "unable to open database file" in str(raised.value)


async def test_the_pool_is_made_once_and_again_with_its_priorities(prefect: object) -> None:
    await ensure_pool()
    await ensure_pool()
    async with get_client() as client:
        pool = await client.read_work_pool(POOL)
        assert pool.type == "process"
        assert "command" in pool.base_job_template["variables"]["properties"], "no worker has to write it first"
        queues = {q.name: q.priority for q in await client.read_work_queues(work_pool_name=POOL)}
    assert [name for name, _ in sorted(queues.items(), key=lambda item: item[1]) if name in QUEUES] == list(QUEUES)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a user with no Prefect of his own yet; a server of his ends with the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environ = kept | {"HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path), "COLUMNS": "200"}
    yield environ
    if (tmp_path / "server.pid").exists():
        _command(environ, "prefect", "server", "stop")


def _asked_until_it_is_gone(url: str) -> None:
    while True:
        httpx.get(url, trust_env=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(environ: dict[str, str], program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / program), *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=110)


@pytest.mark.slow
@pytest.mark.long
def test_a_server_in_the_background_answers_writes_a_log_and_ends_by_the_command_of_prefect(
    home: dict[str, str], tmp_path: Path
) -> None:
    port = str(_free_port())
    started = _command(home, "headgate", "serve-prefect", "--background", "--port", port)
    assert started.returncode == 0, started.stderr
    assert f"export PREFECT_API_URL=http://127.0.0.1:{port}/api" in started.stdout
    assert httpx.get(f"http://127.0.0.1:{port}/api/health", trust_env=False).json() is True
    assert (tmp_path / "server.log").exists()

    with temporary_settings({PREFECT_HOME: tmp_path}):
        assert asyncio.run(start_server(int(port))).was_running
        with pytest.raises(errors.InvalidInputError, match="`prefect server stop` ends it"):
            asyncio.run(start_server(_free_port()))

    assert _command(home, "prefect", "server", "stop").returncode == 0
    with pytest.raises(httpx.TransportError):
        _asked_until_it_is_gone(f"http://127.0.0.1:{port}/api/health")


@pytest.mark.parametrize("words", [(), ("--background",)], ids=["in front", "in the background"])
def test_a_port_that_something_else_listens_on_is_refused_with_what_to_do(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken, temporary_settings({PREFECT_HOME: tmp_path}):
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve-prefect", *words, "--port", port]) == 2
        told = capsys.readouterr()
        assert main(["serve-prefect", *words, "--port", "99999"]) == 2
        assert "port 99999 cannot be listened on: bind(): port must be 0-65535" in capsys.readouterr().err
        monkeypatch.setenv("PREFECT_SERVER_API_PORT", "99998")
        assert main(["serve-prefect", *words]) == 2
        assert "port 99998 cannot be listened on" in capsys.readouterr().err
    assert f"port {port} cannot be listened on" in told.err
    assert "Choose another one" in told.err
    assert not told.out


def test_a_process_that_took_the_number_of_a_server_that_ended_is_not_taken_for_it(tmp_path: Path) -> None:
    with (
        subprocess.Popen(["sleep", "60"]) as other,
        socket.create_server(("127.0.0.1", 0)) as taken,
        temporary_settings({PREFECT_HOME: tmp_path}),
    ):
        (tmp_path / "server.pid").write_text(str(other.pid))
        try:
            with pytest.raises(errors.InvalidInputError, match="cannot be listened on"):
                asyncio.run(start_server(taken.getsockname()[1]))
        finally:
            other.kill()


@pytest.mark.parametrize(("words", "starts"), [((), "run_server"), (("--background",), "start_server")])
def test_any_free_port_is_chosen_before_anything_is_told_of_it(
    words: tuple[str, ...], starts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def start(port: int) -> None:
        asked.append(port)
        raise errors.InvalidInputError("no further")

    monkeypatch.setattr(orchestration, starts, start)
    assert main(["serve-prefect", *words, "--port", "0"]) == 2
    assert asked[0] > 0
