"""How many samples of a campaign with a judge are open at once."""

from __future__ import annotations

from typing import Final

from headgate.scheduling import FrontierRules

_STAGES_QUEUED: Final = 16
"""Ready tasks of one sample at most, at the largest number of judgements."""


def frontier_rules(max_open: int) -> FrontierRules:
    """Return rules under which `max_open` samples are open at most."""
    return FrontierRules(cap=max_open, max_rows=max_open, max_queued=max_open * _STAGES_QUEUED)
