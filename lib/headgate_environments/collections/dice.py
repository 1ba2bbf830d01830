"""Random numbers of one's own for packages that draw from the global generators."""

from __future__ import annotations

import contextlib
import importlib
import random
import threading
from collections.abc import Iterator
from typing import Any, Final

_GLOBAL_DICE: Final = threading.Lock()
"""Protects Python's and numpy's global generators while a block has put its own state there."""


class OwnDice:
    """Where the global generators of Python and numpy stand for one user of them, whoever else draws meanwhile.

    A copy goes on from the same place by itself.
    """

    def __init__(self, seed: int) -> None:
        self._state: tuple[Any, Any] = (
            random.Random(seed).getstate(),
            _numpy_random().RandomState(seed).get_state(),
        )

    @contextlib.contextmanager
    def thrown(self) -> Iterator[None]:
        """Let the block draw from these dice; afterwards the global generators are as they were.

        Nothing may be awaited in the block: all others wait for their dice.
        """
        numpy_random = _numpy_random()
        with _GLOBAL_DICE:
            others = random.getstate(), numpy_random.get_state()
            random.setstate(self._state[0])
            numpy_random.set_state(self._state[1])
            try:
                yield
            finally:
                self._state = random.getstate(), numpy_random.get_state()
                random.setstate(others[0])
                numpy_random.set_state(others[1])


def _numpy_random() -> Any:
    return importlib.import_module("numpy.random")  # not at the top: describing a collection is cheap
