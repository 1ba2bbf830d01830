"""Claims: an engine belongs to one pool of this machine's user at a time."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from headgate.durable.locks import FileLock, LockHeldError
from headgate.elastic.engines.released import file_name, state_folder
from headgate.elastic.errors import WorkerClaimedError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def claim(address: str, holder: str, *, folder: Path | None = None) -> FileLock:
    """Return the right of one pool to put the engine at an address to sleep; whoever gets it gives it back.

    It ends with its process, however that dies.

    Args:
        address: its URL; spellings of the same address are the same engine.
        holder: name of the pool, for whom it keeps out.
        folder: where claims lie; by default a temporary folder of this user.

    Raises:
        WorkerClaimedError: it belongs to another pool, of this process or another one.
    """
    path = (folder or state_folder()) / f"{file_name(same_for_all(address))}.claim"
    claimed = FileLock(path)
    try:
        claimed.take(f"pool {holder!r} of process {os.getpid()}")
    except LockHeldError as error:
        raise WorkerClaimedError(f"{address} already belongs to {error.holder}") from None
    return claimed


def same_for_all(address: str) -> str:
    """Return one spelling for all of an address: an engine of this machine has several names."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"}:
        return address
    host = (parts.hostname or "").lower()
    host = "127.0.0.1" if host in _LOOPBACK else host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{host}:{port}{parts.path.rstrip('/')}"
