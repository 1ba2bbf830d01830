"""What an environment's process prints: kept to be quoted, never more than a little of it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from typing import Final

KEPT_BYTES: Final = 1024 * 1024
"""On disk, looked at with every tick of the keeper; what is older is forgotten."""

_QUOTED_BYTES: Final = 4_096
_QUOTED_LINES: Final = 5
_QUOTED_CHARS: Final = 600


class Printed:
    """A nameless file that a process writes its stdout and stderr to: it is never held up, and needs no reader.

    Lives as long as its `Child`, which owns it.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="headgate-printed-")  # noqa: SIM115 - closed by `close`
        self.descriptor: Final = self._file.fileno()
        # Appending, so that emptying the file moves the writer back to its start.
        flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags | os.O_APPEND)

    def trim(self) -> None:
        """Forget what is old when there is much of it."""
        if os.fstat(self.descriptor).st_size > KEPT_BYTES:
            tail = self._tail()
            os.ftruncate(self.descriptor, 0)
            os.write(self.descriptor, tail)

    def quoted(self) -> str:
        """Return the last lines as an addition to a sentence; empty when nothing was printed."""
        lines = self._tail().decode(errors="replace").split("\n")
        text = " | ".join([line.strip() for line in lines if line.strip()][-_QUOTED_LINES:])
        return f"; it printed: {text[-_QUOTED_CHARS:]}" if text else ""

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def _tail(self) -> bytes:
        size = os.fstat(self.descriptor).st_size
        return os.pread(self.descriptor, _QUOTED_BYTES, max(0, size - _QUOTED_BYTES))
