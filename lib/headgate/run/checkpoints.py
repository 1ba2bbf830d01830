"""Checkpoints of a training: files or folders with a number in their names, each of use once it is whole."""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from headgate.core import checked_name, errors, redacted
from headgate.reports import step_of
from headgate.storage import StoreLocation, open_objects

SETTLE_S: Final = 1.0
"""A checkpoint whose files vouch for each other, or that is one file, is whole when it has not grown for so long."""

SETTLE_FOLDER_S: Final = 10.0
"""Any other folder: whoever writes one file after the other may pause between two of them."""

_UNFINISHED: Final = (".tmp", ".part", ".partial", ".incomplete")
_INDEX: Final = ".index.json"
_UNREAD: Final = (
    "Check the address and your rights; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL are a bucket's "
    "keys and server. Without --once it is read again by itself."
)
_MAX_INDEX_BYTES: Final = 64 * 1024 * 1024


class Checkpoint(NamedTuple):
    """One checkpoint. Sorts by its step.

    Attributes:
        step: the last number in its name.
        name: of its file or folder, without `.gguf`; the revision of the model.
        path: where an engine finds its weights: an absolute path, or an `s3://` URL.
        size_bytes: of all of its files.
        changed: what the file system or bucket says of the times of its files; another one when they are replaced.
    """

    step: int
    name: str
    path: str
    size_bytes: int
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder as a listing shows it.

    Attributes:
        sizes: bytes by file, relative to the folder; one file, named "", where it is no folder.
        changed: see `Checkpoint`.
        settles_s: it is whole when it has not changed for so long.
    """

    name: str
    path: str
    sizes: Mapping[str, int]
    changed: tuple[str, ...] = ()
    settles_s: float = SETTLE_S


@dataclass(slots=True)
class CheckpointWatch:
    """Says which entries of a folder are checkpoints that are whole. Pure: listings and times come in.

    It goes by sizes and times of change: what has not changed since it was first seen with them, by the clock of the
    reader and not that of the file system.

    Attributes:
        pattern: that names match, as a shell has it; `*` takes every name with a number.
    """

    pattern: str = "*"
    _seen: dict[str, tuple[Entry, float]] = field(default_factory=dict)
    is_settling: bool = False
    """Whether anything of the last listing may be whole soon."""
    unfinished: tuple[str, ...] = ()
    """Names of the last listing that are a checkpoint's and not whole: empty, growing, or without their marker."""

    def step(self, name: str) -> int | None:
        """Return the step of a name; None where it is no checkpoint's."""
        is_ours = fnmatch.fnmatchcase(name, self.pattern) and not name.endswith(_UNFINISHED) and name[0] != "."
        return step_of(name) if is_ours else None

    def whole(self, entries: Iterable[Entry], now: float) -> dict[str, Checkpoint]:
        """Return the entries that are whole, by name; `now` is monotonic."""
        found: dict[str, Checkpoint] = {}
        seen = {}
        for entry in entries:
            step, size = self.step(entry.name), sum(entry.sizes.values())
            if step is None:
                continue
            before, since = self._seen.get(entry.name, (entry, now))
            same = (before.sizes, before.changed) == (entry.sizes, entry.changed)
            seen[entry.name] = (entry, since if same else now)
            if size and now - seen[entry.name][1] >= entry.settles_s:
                found[entry.name] = Checkpoint(step, revision_of(entry.name), _weights(entry), size, entry.changed)
        self._seen = seen
        self.unfinished = tuple(sorted(seen.keys() - found.keys()))
        self.is_settling = any(0 < seen[name][0].settles_s < math.inf for name in self.unfinished)
        return found


def revision_of(name: str) -> str:
    """Return the revision that a checkpoint's file or folder stands for: its name, as far as a name may hold it."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name.removesuffix(".gguf")).strip("-._")
    return checked_name(re.sub(r"\.{2,}", ".", kept), "checkpoint")


class CheckpointFolder:
    """The checkpoints in a folder, or below an `s3://bucket/prefix`. Calls block: they belong into a thread.

    What was whole once is not listed again while its name is there, so that a thousand old checkpoints cost one
    listing of names.
    """

    def __init__(self, place: str, *, pattern: str = "*", marker: str = "", environ: Mapping[str, str]) -> None:
        """Prepare it; nothing is read yet.

        Args:
            place: the folder or URL.
            pattern: see `CheckpointWatch`.
            marker: name of the file that says that a folder is whole, such as `DONE`; of a file `step_1.gguf` it is
                `step_1.gguf.DONE`. Empty goes by sizes.
            environ: where the keys of a bucket come from.

        Raises:
            InvalidInputError: if the pattern or the marker names more than one folder's entries.
            InvalidSettingError: if the address of the bucket is none.
        """
        for what, given in (("pattern", pattern), ("marker", marker)):
            if "/" in given:
                raise errors.InvalidInputError(f"the {what} of checkpoints is a name without '/' (got {given!r})")
        objects = open_objects(StoreLocation(place), environ)
        root, bucket = objects.query_root()
        self.place = root.rstrip("/") or "/"
        self.is_remote = "://" in self.place
        """Whether it is a bucket, whose listings cost."""
        self._files: AbstractFileSystem = bucket or LocalFileSystem()
        self._marker = marker
        self.watch = CheckpointWatch(pattern)
        """What is not whole; for reading."""
        self._whole: dict[str, Checkpoint] = {}
        self._looked_at: set[Checkpoint] = set()
        self._was_there = False
        self._close = objects.close

    def whole(self, now: float) -> list[Checkpoint]:
        """Return the checkpoints that are whole, by step, each revision once.

        Raises:
            InvalidInputError: if the folder or the bucket is not there, and never was.
            StoreError: if it cannot be read now.
        """
        try:
            listed = {_name_of(found["name"]): found for found in self._listing()}
            kept = self._whole.items()
            self._whole = {name: one for name, one in kept if name in listed and one not in self._looked_at}
            entries = [self._entry(name, found, listed) for name, found in listed.items() if name not in self._whole]
        except FileNotFoundError as error:
            if self._was_there:
                raise errors.StoreError(f"{error.filename or self.place} is gone", next_step=_UNREAD) from error
            raise errors.InvalidInputError(
                f"there is no {'bucket for' if self.is_remote else 'folder'} {self.place} to follow",
                next_step="Name the folder or s3:// prefix in which the training writes its checkpoints.",
            ) from error
        except Exception as error:  # s3fs lets through whatever botocore and aiohttp raise
            said = redacted(f"{type(error).__name__}: {error}", limit_chars=300)
            raise errors.StoreError(f"{self.place} cannot be read: {said}", next_step=_UNREAD) from error
        self._was_there = True
        self._whole |= self.watch.whole([entry for entry in entries if entry is not None], now)
        return sorted({checkpoint.name: checkpoint for checkpoint in sorted(self._whole.values())}.values())

    def look_again(self, checkpoint: Checkpoint) -> None:
        """List a checkpoint at every look as long as it is as it is: it did not load, and may be replaced."""
        self._looked_at.add(checkpoint)

    def unlike(self) -> list[str]:
        """Return names in the folder that are no checkpoint's, a few of them: for a message."""
        names = [_name_of(found["name"]) for found in self._listing()]
        return sorted(name for name in names if name and self.watch.step(name) is None)[:5]

    def close(self) -> None:
        """Close what is open."""
        self._close()

    def _listing(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = self._files.ls(self.place, detail=True, refresh=True)
        except FileNotFoundError as error:
            if self.is_remote and "bucket" not in str(error):
                return []  # a bucket has no empty folders
            raise
        return found

    def _entry(self, name: str, found: Mapping[str, Any], listed: Mapping[str, Any]) -> Entry | None:
        if not name or self.watch.step(name) is None:
            return None
        path = str(found["name"])
        files, is_marked = {path: found}, f"{name}.{self._marker}" in listed
        if found["type"] == "directory":
            files = self._files.find(path, detail=True, refresh=True)
            is_marked = f"{path}/{self._marker}" in files
        sizes = {str(file).removeprefix(path).lstrip("/"): int(one["size"] or 0) for file, one in files.items()}
        if any(file.endswith(_UNFINISHED) for file in sizes):
            return None
        if self._marker:
            settles_s = 0.0 if is_marked else math.inf
        else:
            settles_s = SETTLE_S if "" in sizes or self._is_vouched(path, sizes) else SETTLE_FOLDER_S
        changed = tuple(_stamp(one) for one in files.values())
        return Entry(name, f"s3://{path}" if self.is_remote else path, sizes, changed, settles_s)

    def _is_vouched(self, path: str, sizes: Mapping[str, int]) -> bool:
        """Return whether an index is there that names shards (`model.safetensors.index.json`), and all of these are."""
        for index in (file for file in sizes if file.endswith(_INDEX) and sizes[file] <= _MAX_INDEX_BYTES):
            try:
                shards = set(json.loads(self._files.cat_file(f"{path}/{index}"))["weight_map"].values())
            except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
                return False
            return all(isinstance(shard, str) and sizes.get(shard) for shard in shards)
        return False


def _stamp(found: Mapping[str, Any]) -> str:
    """Return what tells a file from one that takes its place: the tag of an object, the time of change of a file."""
    return str(found.get("ETag") or found.get("mtime") or "")


def _name_of(path: object) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


def _weights(entry: Entry) -> str:
    """Return what an engine is given: the only GGUF file of a folder, else the file or folder itself."""
    ggufs = [file for file in entry.sizes if file.endswith(".gguf")]
    return f"{entry.path.rstrip('/')}/{ggufs[0]}" if len(ggufs) == 1 else entry.path
