"""What the tests of engines share."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headgate.elastic.engines import Engine, EngineSpec, open_engine
from headgate.elastic.settings import ElasticConfig
from tests.elastic.engines.subjects import PATIENT

Open = Callable[..., Awaitable[Engine]]


@pytest.fixture(autouse=True)
def alone_and_restless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a state of engines of its own, and pauses between attempts and looks take no time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for pause in ("calls._FIRST", "calls._LONGEST", "smg._FIRST", "smg._LONGEST", "sglang._READY"):
        monkeypatch.setattr(f"headgate.elastic.engines.{pause}_PAUSE_S", 0.0)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens engines as a user writes them; they are closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_one(config: ElasticConfig = PATIENT, **written: object) -> Engine:
            engine = await open_engine(EngineSpec(**written), config)
            stack.push_async_callback(engine.close)
            return engine

        yield open_one
