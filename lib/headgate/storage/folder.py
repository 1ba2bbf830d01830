"""Objects as files of a folder: written under a temporary name, flushed, renamed, and the folder flushed too."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from headgate.core import errors
from headgate.durable.files import flush_folder, linked
from headgate.storage.objects import MissingObjectError, ObjectInfo

_TEMPORARY: Final = ".tmp"
_NOT_WRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FolderObjects:
    """An `ObjectStore` in a folder. Many processes may share it without a lock: files only ever appear whole."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._durable_folders: set[Path] = set()

    @property
    def url(self) -> str:
        """The folder."""
        return str(self._root)

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
                        continue  # deleted by another process since the folder was read
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
        """Make a folder and those above it, each entry flushed once by this process: another may have died between."""
        if folder in self._durable_folders and folder.is_dir():
            return
        if folder == self._root:
            folder.mkdir(parents=True, exist_ok=True)
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
