"""A place for objects whose user dies at the n-th change: the state that a kill would leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsspec.spec import AbstractFileSystem

from headgate.core import errors
from headgate.storage.objects import ObjectInfo, ObjectStore


class Killed(BaseException):
    """The process is gone: no handler may catch it."""


class DyingObjects:
    """Passes everything on until `changes` objects were written or deleted, then raises `Killed` for good.

    Objects of one `put_many` count one by one: a process can die between any two of them.
    """

    def __init__(self, objects: ObjectStore, changes: int) -> None:
        self._objects = objects
        self._left = changes
        self.url = objects.url

    def _change(self) -> None:
        if self._left <= 0:
            raise Killed
        self._left -= 1

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        for one in objects:
            self._change()
            self._objects.put_many([one])

    def create(self, key: str, data: bytes) -> bool:
        self._change()
        return self._objects.create(key, data)

    def get(self, key: str) -> bytes:
        return self._objects.get(key)

    def get_many(self, keys: Sequence[str]) -> Iterator[bytes | errors.StoreError]:
        return self._objects.get_many(keys)

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._objects.listing(prefix)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._change()
            self._objects.delete_many([key])

    def sweep_temporary(self, before: float) -> int:
        return self._objects.sweep_temporary(before)

    def query_root(self) -> tuple[str, AbstractFileSystem | None]:
        return self._objects.query_root()

    def close(self) -> None:
        self._objects.close()
