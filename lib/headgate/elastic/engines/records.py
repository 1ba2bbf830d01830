"""Files about engines: which of this user's pools an engine belongs to, and which of its memory is released."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from headgate.durable.files import private_folder, write_whole
from headgate.durable.locks import FileLock, LockHeldError
from headgate.elastic.errors import EngineError, WorkerClaimedError


def file_name(address: str) -> str:
    """Return the name of an engine's files, without an extension."""
    return hashlib.blake2b(address.encode(), digest_size=12).hexdigest()


class ReleasedTags:
    """The tags whose memory an engine has released. Owned by one adapter.

    SGLang does not report what it has released, and crashes if a tag is released or resumed twice (a KeyError in its
    scheduler, an `exit` in its memory saver). So each change is recorded before it is made, as if it were done; a call
    that timed out was delivered, and has taken effect by the time the engine answers anything.

    The record applies to one process of the engine. It includes what distinguishes that process from others
    (`incarnation`); another process starts with nothing released.
    """

    def __init__(self, address: str, folder: Path | None = None) -> None:
        self._path = (folder or private_folder("elastic")) / f"{file_name(address)}.released"
        self._incarnation = ""
        self._tags: set[str] = set()
        self._load()

    def __contains__(self, tag: str) -> bool:
        return tag in self._tags

    def __bool__(self) -> bool:
        return bool(self._tags)

    def met(self, incarnation: str) -> None:
        """Record which process of the engine answers: nothing that an earlier one released is still released."""
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._tags.clear()
            self._save()

    def died(self) -> None:
        """Record that the engine's process is gone."""
        if self._tags:
            self._tags.clear()
            self._save()

    def set(self, tag: str, *, is_released: bool) -> None:
        """Record that a tag is, or is about to be, released or resumed."""
        if (tag in self._tags) is is_released:
            return
        before = set(self._tags)
        (self._tags.add if is_released else self._tags.discard)(tag)
        try:
            self._save()
        except EngineError:
            self._tags = before  # the caller must not make a change that is not recorded
            raise

    def _load(self) -> None:
        try:
            kept = orjson.loads(self._path.read_bytes())
            self._incarnation, self._tags = str(kept["incarnation"]), {str(tag) for tag in kept["tags"]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return  # there is none yet, or a power failure has damaged it: treat the engine as never seen

    def _save(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)  # the system may have cleaned up the temporary folder
            write_whole({self._path: orjson.dumps({"incarnation": self._incarnation, "tags": sorted(self._tags)})})
        except OSError as error:
            raise EngineError(f"what the engine has released cannot be recorded in {self._path}: {error}") from None


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def claim(address: str, holder: str) -> FileLock:
    """Return one pool's exclusive claim to put the engine at an address to sleep; the caller gives it back.

    The claim ends with its process, however that dies.

    Args:
        address: the engine's URL; all spellings of an address are the same engine.
        holder: name of the pool, for the error that other pools get.

    Raises:
        WorkerClaimedError: it belongs to another pool, of this process or another one.
    """
    claimed = FileLock(private_folder("elastic") / f"{file_name(same_for_all(address))}.claim")
    try:
        claimed.take(f"pool {holder!r} of process {os.getpid()}")
    except LockHeldError as error:
        raise WorkerClaimedError(f"{address} already belongs to {error.holder}") from None
    return claimed


def same_for_all(address: str) -> str:
    """Return the canonical spelling of an address: an engine of this machine has several names."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"}:
        return address
    host = (parts.hostname or "").lower()
    host = "127.0.0.1" if host in _LOOPBACK else host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{host}:{port}{parts.path.rstrip('/')}"
