"""How much memory a process and those that it started hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MIB: Final = 1024 * 1024


def resident_mib(process: int) -> float:
    """Return the resident memory of `process` and its descendants; 0 when it is gone, or without /proc.

    Pages that several of them share count once for each.
    """
    return sum(_pages(one) for one in _tree(process)) * _PAGE_BYTES / _MIB


def _tree(process: int) -> list[int]:
    found, ahead = [], [process]
    while ahead:
        one = ahead.pop()
        found.append(one)
        ahead.extend(_children(one))
    return found


def _children(process: int) -> list[int]:
    try:
        texts = [(thread / "children").read_text() for thread in Path(f"/proc/{process}/task").iterdir()]
    except OSError:  # it, or one of its threads, ended meanwhile
        return []
    return [int(child) for text in texts for child in text.split()]


def _pages(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
