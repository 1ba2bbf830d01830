"""What the comparisons of both replays have in common: quantiles of waiting, and their policies as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, Protocol

import numpy as np

QUANTILES: Final = (0.5, 0.95, 0.99)
"""Of waiting, in every table."""


class Said(Protocol):
    """An outcome: it says in a sentence what its policy does."""

    @property
    def says(self) -> str:
        """The sentence."""


def quantiles(values: Sequence[float], shares: Sequence[float] = QUANTILES) -> list[float]:
    """Return for each share the least value that so many of the values do not exceed."""
    return [float(value) for value in np.quantile(values, shares, method="inverted_cdf")]


def policies_document(outcomes: Iterable[Said], measures: Iterable[Any]) -> list[dict[str, Any]]:
    """Return what each policy does and its figures as JSON values."""
    return [{"says": outcome.says} | asdict(each) for outcome, each in zip(outcomes, measures, strict=True)]
