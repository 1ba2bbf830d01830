"""`headgate` on a machine whose clock is CLOCK_AHEAD_S seconds ahead: what Python reads, and the times of new files."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from headgate.cli import main
from headgate.storage import objects
from headgate.storage.objects import ObjectInfo

AHEAD_S = float(os.environ["CLOCK_AHEAD_S"])
_read = time.time


def _listed(key: str, size_bytes: int, modified_at: float) -> Any:
    return ObjectInfo(key, size_bytes, modified_at + AHEAD_S)


time.time = lambda: _read() + AHEAD_S
objects.ObjectInfo = _listed  # type: ignore[misc, assignment]

if __name__ == "__main__":
    sys.exit(main())
