"""Quantiles of waiting, as the tables of both replays have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

QUANTILES: Final = (0.5, 0.95, 0.99)
"""Of waiting, in every table."""


def quantiles(values: Sequence[float], shares: Sequence[float] = QUANTILES) -> list[float]:
    """Return for each share the least value that so many of the values do not exceed."""
    return [float(value) for value in np.quantile(values, shares, method="inverted_cdf")]
