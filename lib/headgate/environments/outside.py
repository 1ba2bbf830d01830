"""Environments that this machine does not have: outside workers do, and all that is known here is the name."""

from __future__ import annotations

from typing import Any, Final

from headgate.core.errors import EnvironmentFailedError
from headgate.environments.protocol import EnvironmentSpec, Episode

_DAILY_RATE: Final = 100.0
_DATA_LENGTH: Final = 1_000_000
"""Which task an index means, and modulo how many, the worker knows."""


class OutsideEnvironment:
    """An environment that only the workers of a job queue can play. Implements `Environment`."""

    def __init__(self, name: str) -> None:
        self.spec = EnvironmentSpec(
            name, "Played by the workers of a job queue.", _DAILY_RATE, _DATA_LENGTH, executor="jobqueue", replays=False
        )

    async def open(self, *_: Any, **__: Any) -> Episode:
        """Refuse to play: always raises `EnvironmentFailedError`."""
        raise EnvironmentFailedError(
            f"environment {self.spec.name!r} is not installed here; only outside workers play it",
            next_step="Start workers that have it, or install the package that registers it.",
        )

    async def baseline(self, *_: Any, **__: Any) -> str:
        """Refuse to play: always raises `EnvironmentFailedError`."""
        await self.open()
        raise AssertionError
