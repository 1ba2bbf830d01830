"""A lock file: says who owns a database file, for as long as that process lives."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from headgate.jobqueue.errors import StoreFailedError, StoreInUseError


class LockFile:
    """A file that one owner at a time has locked. The operating system frees it when the owner dies, however it does.

    The file stays when it is given back: removing it would let two owners lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self, owner: str) -> None:
        """Lock it and write down who has it.

        Raises:
            StoreInUseError: when it is locked, here or by another process.
            StoreFailedError: when it cannot be made.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreFailedError(f"The lock file {self._path} could not be opened: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 1_000, 0).decode(errors="replace").strip() or "a process that just started"
            os.close(handle)
            raise StoreInUseError(f"The job queue of {self._path} is served by {holder}") from error
        except OSError as error:
            os.close(handle)
            raise StoreFailedError(f"The lock file {self._path} could not be locked: {error.strerror}") from error
        with suppress(OSError):  # on a full disk, the lock holds without its words
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} ({owner})\n".encode(errors="replace"), 0)
        self._handle = handle

    def give_back(self) -> None:
        """Unlock it; legal twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
