"""The models and environments that scenarios sample, and what a process costs while it does."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from headgate.core import Model

LOGGER: Final = "headgate_bench.campaign"
"""Logger of the campaigns that are measured: their backpressure warns on purpose."""

_STATM: Final = Path("/proc/self/statm")


def fleet(count: int, base_url: str = "http://127.0.0.1:1/v1", *, name: str = "simulated") -> list[Model]:
    """Return `count` models behind one address, which a scripted chat never calls."""
    return [Model(f"{name}-{number:03d}", base_url=base_url, uid=number) for number in range(count)]


def free_names(count: int) -> list[str]:
    """Return `count` names of environments that cost nothing."""
    return [f"bench:free-{number:02d}" for number in range(count)]


def memory_bytes() -> int:
    """Return the resident memory of this process; where the system does not tell it, its peak so far."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * os.sysconf("SC_PAGE_SIZE")
