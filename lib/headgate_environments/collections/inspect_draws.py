"""Makes inspect's unseeded draws deterministic. Imports inspect_ai: only for `inspect_tasks`."""

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
    """The choices of one sample; whenever a solver shuffles them, their order is drawn from the sample's index.

    A solver's own generator is ignored: with it, a sample's order would depend on when the sample runs.
    """

    def __init__(self, choices: list[str], index: int) -> None:
        super().__init__(choices)
        self._index = index

    def shuffle(self, rand: random.Random | None = None) -> None:
        """Shuffle the choices by the sample's index; `rand` is ignored."""
        del rand
        super().shuffle(random.Random(self._index))


@contextlib.contextmanager
def same_draws() -> Iterator[None]:
    """Make a task that is created in the block draw the same samples and orders of choices on every machine.

    The global generators and shuffled choices get a fixed seed; seeds that a task sets itself are kept.
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
