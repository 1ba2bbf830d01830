"""The object storage interface of the sample store, and its implementation in a folder; `s3` has the other one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol
from urllib.parse import quote

from headgate.core import errors
from headgate.durable.files import flush_folder, linked

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

SAMPLES: Final = "samples/"
MANIFESTS: Final = "manifests/"
QUARANTINE: Final = "quarantine/"
SUMMARY_KEY: Final = "summary/latest.json"
PROBE: Final = "probe/"
LEASES: Final = "leases/"
COMPACT_PREFIX: Final = "compact-"

_BATCH_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}\Z")
_MANIFEST_KEY: Final = re.compile(r"manifests/([A-Za-z0-9][A-Za-z0-9._-]{0,119})\.json\Z")


def checked_batch_id(batch_id: str) -> str:
    """Return `batch_id` if it can name a batch of samples.

    Raises:
        errors.InvalidInputError: if it has characters that are not portable in file names, or names a compaction.
    """
    if not _BATCH_ID.match(batch_id) or batch_id.startswith(COMPACT_PREFIX):
        raise errors.InvalidInputError(
            f"batch id {batch_id[:60]!r} cannot name a batch",
            next_step=f"Use 1 to 120 letters, digits or . _ - , not beginning with {COMPACT_PREFIX!r}.",
        )
    return batch_id


def part_key(environment: str, day: date, batch_id: str, number: int, sha256: str) -> str:
    """Return the key of part `number` of a batch.

    The key contains the beginning of the content's checksum: if another version of the Parquet writer retries the
    batch, it creates another object, and never changes one that a manifest already names.
    """
    folder = f"{SAMPLES}environment={quote(environment, safe='')}/date={day.isoformat()}/"
    return f"{folder}{batch_id}-{number}-{sha256[:12]}.parquet"


def manifest_key(batch_id: str) -> str:
    """Return the key of a batch's manifest."""
    return f"{MANIFESTS}{batch_id}.json"


def batch_id_of(key: str) -> str | None:
    """Return the batch that a manifest's key names, None for a key of another form."""
    found = _MANIFEST_KEY.match(key)
    return found.group(1) if found else None


def quarantine_key(batch_id: str) -> str:
    """Return the key of a batch's quarantined rows."""
    return f"{QUARANTINE}{batch_id}.jsonl"


def compaction_id(number: int) -> str:
    """Return the id of compaction `number`; ids sort as their numbers do."""
    return f"{COMPACT_PREFIX}{number:09d}"


def compaction_number(batch_id: str) -> int | None:
    """Return the number of a compaction's id, None for a batch of samples."""
    digits = batch_id.removeprefix(COMPACT_PREFIX)
    return int(digits) if batch_id.startswith(COMPACT_PREFIX) and digits.isdigit() else None


class MissingObjectError(errors.StoreError):
    """An object does not exist."""

    code: ClassVar[str] = "missing_object"
    http_status: ClassVar[int] = 404
    next_step = "It was deleted after it was listed; list again."


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing shows it."""

    key: str
    size_bytes: int
    modified_at: float


def whole(data: bytes | errors.StoreError) -> bytes:
    """Return an object's data from `get_many`; raise it if it is the error from reading the object."""
    if isinstance(data, errors.StoreError):
        raise data
    return data


class ObjectStore(Protocol):
    """Objects under keys. Calls block, so run them in a thread; each may be repeated and run concurrently.

    Writes are atomic, and durable when the call returns, even after a power cut. Every call ends within its deadline.

    Raises (all calls):
        errors.StoreError: if the storage refused, failed or stalled; `StoreNotWritableError` if retrying cannot help.
    """

    @property
    def url(self) -> str:
        """The address, without secrets."""

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Write the objects, replacing existing ones."""

    def create(self, key: str, data: bytes) -> bool:
        """Write the object unless its key exists; return whether it was written."""

    def get(self, key: str) -> bytes:
        """Return the object; raises `MissingObjectError` when there is none."""

    def get_many(self, keys: Sequence[str]) -> Iterator[bytes | errors.StoreError]:
        """Yield the objects in the order of their keys, an error in place of each that is missing or unreadable."""

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with `prefix`, a folder with its slash."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete the objects; those that are not there are no error."""

    def sweep_temporary(self, before: float) -> int:
        """Delete what dead writers left before wall time `before`; return the number of files."""

    def query_root(self) -> tuple[str, AbstractFileSystem | None]:
        """Return the prefix that turns keys into DuckDB paths, and the file system to open them, None for its own."""

    def close(self) -> None:
        """Close connections; idempotent."""


_TEMPORARY: Final = ".tmp"
_NOT_WRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
_NO_FLUSH: Final = _NOT_WRITABLE | {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FolderObjects:
    """An `ObjectStore` in a folder. Many processes may share it without a lock: files only ever appear whole."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.url = str(self._root)
        self._durable_folders: set[Path] = set()

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Write the objects, replacing what has their keys."""
        folders: dict[Path, None] = {}
        with _typed(self._root):
            for key, data in objects:
                path = self._root / key
                temporary = self._written(data)
                self._make(path.parent)
                temporary.replace(path)
                folders[path.parent] = None
            for folder in folders:
                flush_folder(folder)

    def create(self, key: str, data: bytes) -> bool:
        """Write the object if nothing has its key; False when something has."""
        path = self._root / key
        with _typed(self._root):
            temporary = self._written(data)
            self._make(path.parent)
            try:
                if not linked(temporary, path):
                    return False
            finally:
                temporary.unlink(missing_ok=True)
            flush_folder(path.parent)
        return True

    def get(self, key: str) -> bytes:
        """Return the object; raises `MissingObjectError` when there is none."""
        with _typed(self._root):
            try:
                return (self._root / key).read_bytes()
            except FileNotFoundError as error:
                raise MissingObjectError(f"{self._root / key} does not exist") from error

    def get_many(self, keys: Sequence[str]) -> Iterator[bytes | errors.StoreError]:
        """Yield the objects in the order of their keys, an error in place of each that is missing or unreadable."""
        for key in keys:
            try:
                yield self.get(key)
            except errors.StoreError as error:
                yield error

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with `prefix`, a folder with its slash."""
        with _typed(self._root):
            for folder, _, names in os.walk(self._root / prefix):
                for name in names:
                    path = Path(folder) / name
                    try:
                        found = path.stat()
                    except FileNotFoundError:
                        continue  # deleted by another process since the folder was listed
                    yield ObjectInfo(path.relative_to(self._root).as_posix(), found.st_size, found.st_mtime)

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete the objects; those that are not there are no error."""
        with _typed(self._root):
            for key in keys:
                (self._root / key).unlink(missing_ok=True)

    def sweep_temporary(self, before: float) -> int:
        """Delete the temporary files of writers that died before wall time `before`; return their number."""
        old = [found.key for found in self.listing(f"{_TEMPORARY}/") if found.modified_at < before]
        self.delete_many(old)
        return len(old)

    def query_root(self) -> tuple[str, AbstractFileSystem | None]:
        """Return the folder with its slash; DuckDB opens files by itself."""
        return f"{self._root}/", None

    def close(self) -> None:
        """Do nothing: files are closed after each call."""

    def _written(self, data: bytes) -> Path:
        temporary = self._root / _TEMPORARY / f"{os.getpid()}-{secrets.token_hex(8)}"
        self._make(temporary.parent)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _make(self, folder: Path) -> None:
        """Create a folder and its parents, flushing each once, since another process may have died before doing so."""
        if folder in self._durable_folders and folder.is_dir():
            return
        if folder == self._root:
            folder.mkdir(parents=True, exist_ok=True)
            for each in folder.parents:
                try:
                    flush_folder(each)
                except OSError as error:
                    if error.errno not in _NO_FLUSH:  # one of others, or one that cannot be flushed, is an old one
                        raise
        else:
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
            flush_folder(folder.parent)
        self._durable_folders.add(folder)


@contextlib.contextmanager
def _typed(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _store_error(error, root) from error


def _store_error(error: OSError, root: Path) -> errors.StoreError:
    said = f"{error.strerror or error} at {error.filename or root}"
    if error.errno in _NO_SPACE:
        return errors.StoreError(
            f"no space is left for the sample store {root}: {said}",
            next_step="Free some space; what was to be stored stays in the spool and is tried again by itself.",
        )
    if error.errno in _NOT_WRITABLE:
        return errors.StoreNotWritableError(f"the sample store {root} cannot be used: {said}")
    return errors.StoreError(f"the sample store {root} failed: {said}")
