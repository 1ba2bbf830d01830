"""Locks with one owner at a time, on this machine. The operating system frees them when the owner dies in any way.

They belong to the open file (`flock`): two owners in one process exclude each other, too.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headgate.core import DAY_S, HolderId

LOST: Final = ".lost"
LOST_S: Final = DAY_S
"""How long the death of a holder that announced something is remembered; its file's time is when it was found dead."""

_HOLDER_BYTES: Final = 1_000
_YOUNG_S: Final = 60.0
_GLANCE_S: Final = 0.01
_SWEEP_EVERY_S: Final = 60.0
_swept: Final[dict[tuple[str, str], float]] = {}
"""When this process last looked for folders of killed owners; some callers make a folder several times a second."""


class LockHeldError(Exception):
    """Another owner has the lock.

    Attributes:
        holder: the other owner's description of itself.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(f"locked by {holder}")
        self.holder = holder


class FileLock:
    """A file that one owner at a time can lock.

    The file stays when it is unlocked: removing it would let two owners lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None

    def take(self, owner: str = "", *, waits: bool = False) -> None:
        """Lock the file, creating it and its folder if missing, and write its owner into it.

        Args:
            owner: description of the owner, for others who find the file locked.
            waits: whether to wait while another owner has it.

        Raises:
            LockHeldError: another owner has it.
            OSError: the file cannot be created or locked.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            self._lock(handle, waits)
        except BlockingIOError:
            holder = _words(handle)
            os.close(handle)
            raise LockHeldError(holder or "a process that just started") from None
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        self.say(owner)

    def say(self, owner: str) -> None:
        """Write the owner of the lock that this object holds into the file, for others who find it locked."""
        assert self._handle is not None, "the lock is not held"
        words = owner.encode(errors="replace")
        with suppress(OSError):  # on a full disk, the lock is held without the description
            os.pwrite(self._handle, words, 0)
            os.ftruncate(self._handle, len(words))

    @staticmethod
    def _lock(handle: int, waits: bool) -> None:
        if waits:
            fcntl.flock(handle, fcntl.LOCK_EX)
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # `lock_of` in another process may hold it, for microseconds
            time.sleep(_GLANCE_S)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def give_back(self) -> None:
        """Unlock it; may be called twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _words(handle: int) -> str:
    return os.pread(handle, _HOLDER_BYTES, 0).decode(errors="replace").strip()


def lock_of(path: Path) -> tuple[bool, str]:
    """Return whether the lock of a `FileLock` is held, and the description of its current or last owner.

    This does not keep others from taking it, and works on a read-only disk.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False, ""
    said = ""
    try:
        said = _words(handle)
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True, said
    finally:
        os.close(handle)
    return False, said


class Holders:
    """One locked file per living process of a journal; no timeout is needed to know which are dead."""

    def __init__(self, folder: Path, me: HolderId) -> None:
        """Join the holders in `folder`, which is created if missing.

        Raises:
            OSError: if the folder cannot be created or written.
        """
        self._folder = folder
        self._me = me
        self._lock = FileLock(folder / me)
        self._lock.take()

    def announce(self, said: str) -> None:
        """Write a text into this process's file, for readers of it."""
        self._lock.say(said)

    def is_dead(self, holder: str) -> bool:
        """Return whether a holder's process is gone: its lock can be taken, or its file is missing.

        Its file is removed; if it announced something, that is kept for `LOST_S` in a file of its name and `LOST`.
        """
        path, is_alive, said = self._folder / holder, True, ""
        with suppress(OSError):  # if in doubt, it is alive
            is_alive, said = (True, "") if holder == self._me else lock_of(path)
        with suppress(FileNotFoundError):  # another process has just done this
            if said and not is_alive and path.suffix != LOST:
                os.utime(path)
                path.rename(f"{path}{LOST}")
            elif not is_alive and not (said and time.time() - path.stat().st_mtime < LOST_S):
                path.unlink()
        return not is_alive

    def others(self) -> bool:
        """Return whether another holder is alive."""
        return any(not self.is_dead(path.name) for path in self._folder.iterdir() if path.name != self._me)

    def leave(self) -> None:
        """Release the lock; to be called once."""
        (self._folder / self._me).unlink(missing_ok=True)
        self._lock.give_back()


@contextmanager
def folder_locked(folder: Path, *, where_possible: bool = False) -> Iterator[None]:
    """Lock a folder, waiting for other owners, for as long as the context is open.

    Args:
        folder: an existing folder.
        where_possible: continue without a lock where the file system cannot lock folders, as some network shares.

    Raises:
        OSError: the folder cannot be opened or locked.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            if not where_possible:
                raise
        yield
    finally:
        os.close(handle)


@contextmanager
def temporary_folder(prefix: str, place: str | None = None) -> Iterator[Path]:
    """Yield a new folder that is removed with the context, and remove those of owners that were killed earlier.

    Args:
        prefix: prefix of the folder's name, by which this user's leftover ones are found.
        place: parent folder; by default the system's folder for temporary files.
    """
    place = place or tempfile.gettempdir()
    now = time.monotonic()
    if now - _swept.get((place, prefix), -math.inf) > _SWEEP_EVERY_S:
        _swept[place, prefix] = now
        for left in Path(place).glob(f"{prefix}*"):
            with suppress(OSError):
                _remove_unowned(left)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as name,
        folder_locked(Path(name), where_possible=True),
    ):
        yield Path(name)


def _remove_unowned(folder: Path) -> None:
    """Remove a folder that its owner has not locked, unless it is so young that the owner may be about to.

    Raises:
        OSError: it has an owner, or is not a folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if found.st_uid == os.getuid() and time.time() - found.st_ctime > _YOUNG_S:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
