"""How many examples a property or a state machine is tried with: a quarter in `make test`, all in `make test-long`."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> int:
    """Return how many of `number` examples the loaded profile of Hypothesis asks for; that of `make test-long` all."""
    return max(1, number * settings().max_examples // 100)
