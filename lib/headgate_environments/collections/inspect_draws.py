"""Draws of inspect without a seed, made the same for everybody. Imports inspect_ai: only for `inspect_tasks`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Final

from inspect_ai.dataset import MemoryDataset
from inspect_ai.solver._task_state import Choices

from headgate_environments.collections.members import OwnDice

_SEED: Final = 0


class DrawnChoices(Choices):
    """The choices of one sample, in an order that is drawn from its index whenever a solver shuffles them.

    A generator that a solver brings is not asked: it would give each sample an order by when its turn comes.
    """

    def __init__(self, choices: list[str], index: int) -> None:
        super().__init__(choices)
        self._index = index

    def shuffle(self, rand: random.Random | None = None) -> None:
        """Shuffle, as the class says."""
        del rand
        super().shuffle(random.Random(self._index))


@contextlib.contextmanager
def same_draws() -> Iterator[None]:
    """Let the task that the block makes draw samples, and the order of their choices, as it does everywhere.

    The global generators and shuffled choices get a seed; seeds that a task states are kept.
    """
    shuffle_choices = MemoryDataset.shuffle_choices

    def seeded(dataset: MemoryDataset, seed: int | None = None) -> None:
        shuffle_choices(dataset, _SEED if seed is None else seed)

    MemoryDataset.shuffle_choices = seeded  # type: ignore[method-assign, assignment]
    try:
        with OwnDice(_SEED).thrown():
            yield
    finally:
        MemoryDataset.shuffle_choices = shuffle_choices  # type: ignore[method-assign]
