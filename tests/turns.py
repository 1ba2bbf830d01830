"""Whose turn it is when tests run in several processes: tests marked `alone` run while no other test does."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest


class Turns:
    """Locks that the processes of one run of the tests share; in a run of one process they are free.

    Who waits for the room to itself keeps the door meanwhile, so that nobody can enter before it again and again.
    """

    def __init__(self, folder: Path) -> None:
        self._door = (folder / "door.lock").open("w")
        self._room = (folder / "room.lock").open("w")
        self._is_alone = False

    @contextmanager
    def turn(self, *, alone: bool, next_alone: bool) -> Iterator[None]:
        """Wait for this process's turn; tests that follow each other alone are one turn."""
        if not self._is_alone:
            with _locked(self._door):
                fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._is_alone = alone and next_alone
        try:
            yield
        finally:
            if not self._is_alone:
                fcntl.flock(self._room, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave; whatever is held ends with it."""
        self._door.close()
        self._room.close()


def is_alone(item: pytest.Item | None) -> bool:
    """Return whether a test is not to run beside others."""
    return item is not None and item.get_closest_marker("alone") is not None


@contextmanager
def _locked(file: IO[str]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
