"""The command line, run in this process, and a store with samples to ask."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from headgate.models import serve


@dataclass
class Said:
    """What a command returned and printed."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


@pytest.fixture(autouse=True)
def _as_wide_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as they are where nobody says: tests of other folders leave COLUMNS behind."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def headgate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Command]:
    """Run `headgate` with these arguments, in an empty folder without variables of Headgate's."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        status = main(arguments)
        said = capsys.readouterr()
        return Said(status, said.out, said.err)

    yield run
    import logging

    logging.getLogger("headgate").handlers.clear()


@pytest.fixture
def roster(tmp_path: Path) -> Path:
    path = tmp_path / "roster.yaml"
    path.write_text(
        "models:\n  - {name: alpha, base_url: 'http://127.0.0.1:9/v1'}\n  - {name: beta, base_url: 'http://127.0.0.1:9/v1'}\n"
    )
    return path


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The baselines on a thread of their own: the command line runs its own event loop."""
    address: list[str] = []
    ready, stopping = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        async with serve() as served:
            address.append(served.base_url)
            ready.set()
            await stopping.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert ready.wait(20)
    yield address[0]
    loop.call_soon_threadsafe(stopping.set)
    thread.join(20)
    loop.close()
