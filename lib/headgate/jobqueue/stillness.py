"""Whether a process has stood still: stopped, suspended or starved, so that it could hear nobody."""

from __future__ import annotations

import logging
import time
from typing import Final

_log = logging.getLogger("headgate.jobqueue")

_SLACK_S: Final = 0.001
"""A lease is over when its deadline has passed, not when it is reached."""

_OVERSLEPT_S: Final = 1.0
"""A deadline met this much too late means that this process stood still: heartbeats could not come in."""

_STOOD_STILL_S: Final = 2.0
"""So much real time between two looks at the clock means the same, also when it ended right after a deadline. Less than
a third of the shortest lease: whoever was heard before loses nothing by a shorter one."""

_LOOK_EVERY_S: Final = 0.5

_BACKLOG_S: Final = 0.25
"""What came in while this process stood still is read within so long after."""


class Lookout:
    """Looks at the clock for the desk, which owns it, as long as leases run."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()

    def wait_s(self, deadline: float | None, now: float) -> float | None:
        """Return how long to wait for requests before the next look; None for ever."""
        return None if deadline is None else min(max(deadline + _SLACK_S - now, 0.0), _LOOK_EVERY_S)

    def has_stood_still(self, deadline: float | None, now: float) -> bool:
        """Look; return whether a lease is due that could not be renewed because nobody could be heard.

        Args:
            deadline: of the lease that ends first.
            now: by the desk's clock, as the deadline.
        """
        # Real time, whatever the desk's clock says: it is the process that is asked about.
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        if deadline is None or now + _BACKLOG_S < deadline:
            return False
        if self._looked_at - looked_at <= _STOOD_STILL_S and now <= deadline + _OVERSLEPT_S:
            return False
        _log.warning("Woke %.1f s after the deadline of a lease: every lease gets a full new period", now - deadline)
        return True
