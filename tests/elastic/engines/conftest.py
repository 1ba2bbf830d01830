"""What the tests of engines share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headgate.elastic.engines import Engine, EngineSpec, open_engine
from headgate.elastic.settings import ElasticConfig
from tests.elastic.engines.subjects import PATIENT, Restless

Open = Callable[..., Awaitable[Engine]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens engines as a user writes them; they are closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_one(config: ElasticConfig = PATIENT, **written: object) -> Engine:
            engine = await open_engine(EngineSpec(**written), config, clock=Restless(), folder=tmp_path)
            stack.push_async_callback(engine.close)
            return engine

        yield open_one
