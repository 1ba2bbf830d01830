"""Claims: an engine belongs to one pool of this machine's user at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from urllib.parse import urlsplit

from headgate.elastic.engines.released import file_name, state_folder
from headgate.elastic.errors import WorkerClaimedError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


class Claim:
    """The right of one pool to put an engine to sleep. Ends when it is given up or its process dies, however it dies.

    Held by a lock on a file, which is left behind without a meaning.
    """

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    def give_up(self) -> None:
        """Let others claim the engine; legal twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def claim(address: str, holder: str, *, folder: Path | None = None) -> Claim:
    """Claim the engine at an address for a pool.

    Args:
        address: its URL; spellings of the same address are the same engine.
        holder: name of the pool, for whom it keeps out.
        folder: where claims lie; by default a temporary folder of this user.

    Raises:
        WorkerClaimedError: it belongs to another pool, of this process or another one.
    """
    path = (folder or state_folder()) / f"{file_name(same_for_all(address))}.claim"
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"pool {holder!r} of process {os.getpid()}".encode(), 0)
    except BlockingIOError:
        by = os.pread(handle, 200, 0).decode("utf-8", "replace") or "another pool"
        os.close(handle)
        raise WorkerClaimedError(f"{address} already belongs to {by}") from None
    except BaseException:
        os.close(handle)
        raise
    return Claim(handle)


def same_for_all(address: str) -> str:
    """Return one spelling for all of an address: an engine of this machine has several names."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"}:
        return address
    host = (parts.hostname or "").lower()
    host = "127.0.0.1" if host in _LOOPBACK else host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{host}:{port}{parts.path.rstrip('/')}"
