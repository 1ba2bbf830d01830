"""Whether a process lives, as tests ask it that have ended one."""

from __future__ import annotations

from pathlib import Path


def is_alive(pid: int) -> bool:
    """Return whether there is such a process, and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second, if it goes between opening and reading
        return False
    return state != "Z"
