"""Holders: which processes of a journal are alive, as the operating system knows it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headgate.core import HolderId


class Holders:
    """One locked file per living process. The lock ends with its process, however that dies; no time limit is needed.

    Owned by a journal. `flock` belongs to the open file: two journals of one process see each other alive, too.
    """

    def __init__(self, folder: Path, me: HolderId) -> None:
        """Join the holders in `folder`, which is made when it is missing.

        Raises:
            OSError: if the folder cannot be made or written.
        """
        self._folder = folder
        self._me = me
        folder.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(folder / me, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_dead(self, holder: str) -> bool:
        """Return whether a holder's process is gone: its lock can be taken, or its file is missing. Sweeps the file."""
        if holder == self._me:
            return False
        try:
            handle = os.open(self._folder / holder, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            (self._folder / holder).unlink(missing_ok=True)
            return True
        finally:
            os.close(handle)

    def others(self) -> bool:
        """Return whether another holder is alive."""
        return any(not self.is_dead(path.name) for path in self._folder.iterdir() if path.name != self._me)

    def leave(self) -> None:
        """Give the lock back, once."""
        (self._folder / self._me).unlink(missing_ok=True)
        os.close(self._handle)
