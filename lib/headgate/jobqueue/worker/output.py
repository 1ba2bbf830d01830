"""What a command printed: all of it in a file, and its end as text."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from headgate.core import redacted

_READ_BYTES: Final = 64 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def tail_of(path: Path, chars: int) -> str:
    """Return the last characters that were printed, without secrets, colours and control characters.

    What is no UTF-8 shows as U+FFFD; a progress bar as its last state. Empty when nothing was printed, or the file is
    gone.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _READ_BYTES))
            data = file.read(_READ_BYTES)
    except OSError:
        return ""
    text = _COLOURS.sub("", data.decode(errors="replace"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    clean = _CONTROL.sub("", "\n".join(lines)).strip()
    return redacted(clean, limit_chars=2 * _READ_BYTES)[-chars:] if chars > 0 else ""
