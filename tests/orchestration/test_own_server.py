"""The private Prefect server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

from headgate.core import errors
from headgate.orchestration import POOL, QUEUES, ensure_pool, private_server


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
