"""What the sample store needs of a place to keep objects; `folder` and `s3` are the two places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Final, Protocol
from urllib.parse import quote

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from headgate.core import errors

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
    """Return `batch_id` when it can name a batch of samples.

    Raises:
        errors.InvalidInputError: if it has other characters than a file name has everywhere, or names a compaction.
    """
    if not _BATCH_ID.match(batch_id) or batch_id.startswith(COMPACT_PREFIX):
        raise errors.InvalidInputError(
            f"batch id {batch_id[:60]!r} cannot name a batch",
            next_step=f"Use 1 to 120 letters, digits or . _ - , not beginning with {COMPACT_PREFIX!r}.",
        )
    return batch_id


def part_key(environment: str, day: date, batch_id: str, number: int, sha256: str) -> str:
    """Return the key of part `number` of a batch.

    The key carries the beginning of the content's checksum: a second try of the batch by another version of the
    Parquet writer makes an object of its own and never changes one that a manifest already vouches for.
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
