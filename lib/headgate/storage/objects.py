"""What the sample store needs of a place to keep objects; `folder` and `s3` are the two places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from headgate.core import errors


class MissingObjectError(errors.StoreError):
    """An object is not there."""

    code: ClassVar[str] = "missing_object"
    http_status: ClassVar[int] = 404
    next_step = "It was deleted after it was listed; list again."


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing shows it."""

    key: str
    size_bytes: int
    modified_at: float


class ObjectStore(Protocol):
    """Objects under keys. Calls block, so they belong into a thread; each is safe to repeat and to run at once.

    An object appears whole or not at all, and a call that returned survives a power cut. Every call ends by itself
    within its deadline.

    Raises (all calls):
        errors.StoreError: if the place refused, failed or stalled; `StoreNotWritableError` when it never will work.
    """

    @property
    def url(self) -> str:
        """The address, without secrets."""
        ...

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Write the objects, replacing what has their keys."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write the object if nothing has its key; False when something has."""
        ...

    def get(self, key: str) -> bytes:
        """Return the object; raises `MissingObjectError` when there is none."""
        ...

    def get_many(self, keys: Sequence[str]) -> Iterator[bytes | errors.StoreError]:
        """Yield the objects in the order of their keys, an error in place of each that is missing or unreadable."""
        ...

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with `prefix`, a folder with its slash."""
        ...

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete the objects; those that are not there are no error."""
        ...

    def sweep_temporary(self, before: float) -> int:
        """Delete what writers that died left behind before wall time `before`; return how much that was."""
        ...

    def query_root(self) -> tuple[str, AbstractFileSystem | None]:
        """Return what makes keys into paths for DuckDB, and the file system that opens them if it is ours."""
        ...

    def close(self) -> None:
        """Let go of connections; legal more than once."""
        ...
