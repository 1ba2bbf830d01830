"""The calls of Prefect's API that slots are leased with, against a server that asks to come again."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prefect import settings as prefect_settings

from headgate.core.errors import InvalidInputError, OrchestratorUnreachableError
from headgate.orchestration import open_slot_service
from headgate.orchestration.slots.service import MachineLock, SlotServiceBusyError


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, SlotServiceBusyError), (429, SlotServiceBusyError), (502, OrchestratorUnreachableError)],
)
async def test_a_server_that_is_busy_is_told_of_at_once(
    status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/csrf-token"):
            return web.Response(status=404)
        return web.Response(status=status, headers={"Retry-After": "30"})

    async def waited(seconds: float) -> None:
        raise AssertionError(f"the client waits for {seconds:.1f} s while this process has the lock of the machine")

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(server) as running:
        with prefect_settings.temporary_settings({prefect_settings.PREFECT_API_URL: str(running.make_url("/api"))}):
            async with open_slot_service() as service:
                monkeypatch.setattr(anyio, "sleep", waited)
                with pytest.raises(error, match=str(status)):
                    await service.lease("headgate:models.example.com", 8, 60.0)


async def test_the_register_is_read_whole_however_many_processes_were_killed() -> None:
    entry = {"process": "p", "lease_s": 60, "limits": {"headgate:models.example.com": [1, 0, 1]}}
    rows = [
        {"name": f"headgate_slots_{number:04}", "updated": "2026-01-01T00:00:00+00:00", "value": entry}
        for number in range(450)
    ]

    async def answer(request: web.Request) -> web.Response:
        if not request.path.endswith("/variables/filter"):
            return web.Response(status=404)
        wanted = await request.json()
        return web.json_response(rows[wanted.get("offset", 0) :][: wanted["limit"]])

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(server) as running:
        with prefect_settings.temporary_settings({prefect_settings.PREFECT_API_URL: str(running.make_url("/api"))}):
            async with open_slot_service() as service:
                assert len({holder.name for holder in await service.holders()}) == 450


def laid_out_as_link(tmp_path: Path) -> Path:
    """Replace the lock's file by a link, in a folder that others may write in; return the file that it leads to."""
    (file,) = tmp_path.glob("headgate-slots-*/*.lock")
    file.unlink()
    file.parent.chmod(0o777)  # as another user would make it, before this one does
    file.symlink_to(precious := tmp_path / "precious")
    precious.write_text("kept")
    return precious


async def test_a_lock_that_somebody_else_laid_out_as_a_link_empties_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with (lock := MachineLock("http://127.0.0.1:4200/api")):
        pass
    precious = laid_out_as_link(tmp_path)
    with pytest.raises(InvalidInputError, match="only user"):
        async with lock:
            pass
    assert precious.read_text() == "kept"
