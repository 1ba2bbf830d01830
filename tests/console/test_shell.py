"""What every page has: the frame, who is let in, what is refused, and that nobody watching costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest
from anyio.from_thread import BlockingPortal

from headgate.cli.console_server import console_beside
from headgate.console import serve_console
from headgate.net.listener import free_port
from tests.console.conftest import Serve, Visits, is_accessible, settings


@pytest.fixture(scope="module")
def open_console(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a console on loopback, without tokens; the campaign that it is to show does not run."""
    made = settings(tmp_path_factory.mktemp("console"))
    return serve(serve_console(made, runs=["http://127.0.0.1:9"], port=0))


def test_a_part_that_does_not_answer_is_shown_as_down(open_console: str, visits: Visits) -> None:
    with visits.page() as page:
        page.goto(open_console)
        assert "down since" in page.inner_text("#live")
        page.wait_for_selector("#link.on")
        assert is_accessible(page) == []


@pytest.mark.slow
def test_a_run_serves_its_console_by_a_process_beside_it(
    portal: BlockingPortal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = free_port()

    async def answers(http: httpx.AsyncClient) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return (await http.get(f"http://127.0.0.1:{port}/health")).json() == {"status": "healthy"}
        return False

    async def watch() -> tuple[bool, bool]:
        async with httpx.AsyncClient() as http:
            async with console_beside(settings(tmp_path, console_port=port)), asyncio.timeout(60):
                while not await answers(http):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.1)
            return True, await answers(http)

    assert portal.call(watch) == (True, False)
