"""Checkpoints of a training run: files or folders with a number in their names, usable once they are complete."""

from __future__ import annotations

import contextlib
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
"""A checkpoint that is one file, or whose index lists its shards, is complete when unchanged for this long."""

SETTLE_FOLDER_S: Final = 10.0
"""The same for any other folder: a writer may pause between one file and the next."""

_UNFINISHED: Final = (".tmp", ".part", ".partial", ".incomplete")
_INDEX: Final = ".index.json"
_UNREAD: Final = (
    "Check the address and your permissions; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL give a "
    "bucket's keys and server. Without --once, Headgate keeps retrying."
)
_MAX_INDEX_BYTES: Final = 64 * 1024 * 1024


class Checkpoint(NamedTuple):
    """One checkpoint. Sorts by its step.

    Attributes:
        step: the last number in its name.
        name: of its file or folder, without `.gguf`; the model's revision.
        path: where an engine finds its weights: an absolute path, or an `s3://` URL.
        size_bytes: total of its files.
        changed: modification times or ETags of its files; different once they are replaced.
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
        sizes: bytes by file, relative to the folder; for a single file, one entry named "".
        changed: see `Checkpoint`.
        settles_s: seconds without a change after which it is complete.
    """

    name: str
    path: str
    sizes: Mapping[str, int]
    changed: tuple[str, ...] = ()
    settles_s: float = SETTLE_S


@dataclass(slots=True)
class CheckpointWatch:
    """Decides which entries of a folder are complete checkpoints. Pure: listings and times come in.

    An entry is complete once its sizes and modification times have stayed the same for its `settles_s`, measured from
    when they were first seen, by the reader's clock rather than the file system's.

    Attributes:
        pattern: shell pattern that names must match; `*` takes every name with a number.
    """

    pattern: str = "*"
    _seen: dict[str, tuple[Entry, float]] = field(default_factory=dict)
    is_settling: bool = False
    """Whether anything in the last listing may soon be complete."""
    unfinished: tuple[str, ...] = ()
    """Checkpoints in the last listing that are incomplete, by name: empty, growing, or without their marker."""

    def step(self, name: str) -> int | None:
        """Return the step in a name; None if it is not a checkpoint's name."""
        is_ours = fnmatch.fnmatchcase(name, self.pattern) and not name.endswith(_UNFINISHED) and name[0] != "."
        return step_of(name) if is_ours else None

    def whole(self, entries: Iterable[Entry], now: float) -> dict[str, Checkpoint]:
        """Return the complete checkpoints, by name; `now` is monotonic."""
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
    """Return the revision of a checkpoint's file or folder: its name without characters that revisions forbid."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name.removesuffix(".gguf")).strip("-._")
    return checked_name(re.sub(r"\.{2,}", ".", kept), "checkpoint")


class CheckpointFolder:
    """The checkpoints in a folder, or below an `s3://bucket/prefix`. Calls block: make them in a thread.

    A complete checkpoint is not listed again while its name is there, so that a thousand old checkpoints cost only
    the listing of the folder.
    """

    def __init__(self, place: str, *, pattern: str = "*", marker: str = "", environ: Mapping[str, str]) -> None:
        """Prepare it; nothing is read yet.

        Args:
            place: the folder or URL.
            pattern: see `CheckpointWatch`.
            marker: name of the file that marks a folder as complete, such as `DONE`; for a file `step_1.gguf` it is
                `step_1.gguf.DONE`. If empty, sizes and times decide.
            environ: where the keys of a bucket come from.

        Raises:
            InvalidInputError: if the pattern or the marker contains a slash.
            InvalidSettingError: if the bucket's address is invalid.
        """
        for what, given in (("pattern", pattern), ("marker", marker)):
            if "/" in given:
                raise errors.InvalidInputError(f"the {what} of checkpoints is a name without '/' (got {given!r})")
        objects = open_objects(StoreLocation(place), environ)
        root, bucket = objects.query_root()
        self.place = root.rstrip("/") or "/"
        self.is_remote = "://" in self.place
        """Whether it is a bucket, where each listing costs a request."""
        self._files: AbstractFileSystem = bucket or LocalFileSystem()
        self._marker = marker
        self.watch = CheckpointWatch(pattern)
        """Tells which checkpoints are incomplete; read-only for callers."""
        self._whole: dict[str, Checkpoint] = {}
        self._looked_at: set[Checkpoint] = set()
        self._was_there = False
        self._close = objects.close

    def whole(self, now: float) -> list[Checkpoint]:
        """Return the complete checkpoints, by step, each revision once.

        Raises:
            InvalidInputError: if the folder or the bucket does not exist and never did.
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
                next_step="Name the training's folder or s3:// prefix; if it has not begun, create the folder.",
            ) from error
        except Exception as error:  # s3fs does not wrap what botocore and aiohttp raise
            said = redacted(f"{type(error).__name__}: {error}", limit_chars=300)
            raise errors.StoreError(f"{self.place} cannot be read: {said}", next_step=_UNREAD) from error
        self._was_there = True
        self._whole |= self.watch.whole([entry for entry in entries if entry is not None], now)
        return sorted({checkpoint.name: checkpoint for checkpoint in sorted(self._whole.values())}.values())

    def look_again(self, checkpoint: Checkpoint) -> None:
        """List this checkpoint every time until it changes: it failed to load, and may be replaced."""
        self._looked_at.add(checkpoint)

    def unlike(self) -> list[str]:
        """Return up to five names in the folder that are not checkpoints, for a message."""
        names = [_name_of(found["name"]) for found in self._listing()]
        return sorted(name for name in names if name and self.watch.step(name) is None)[:5]

    def close(self) -> None:
        """Close the connection to the bucket, if any."""
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
        path, found = str(found["name"]), self._target(found)
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
        changed = tuple(_stamp(self._target(one)) for one in files.values())
        return Entry(name, f"s3://{path}" if self.is_remote else path, sizes, changed, settles_s)

    def _target(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a link leads to as the listing shows it, under the link's name; anything else as it is."""
        if found.get("islink"):
            with contextlib.suppress(OSError):  # it leads nowhere: an empty file, which is never complete
                return dict(self._files.info(found["name"]))
        return found

    def _is_vouched(self, path: str, sizes: Mapping[str, int]) -> bool:
        """Return whether there is an index (`model.safetensors.index.json`), and all shards that any index lists."""
        indexes = [file for file in sizes if file.endswith(_INDEX) and sizes[file] <= _MAX_INDEX_BYTES]
        for index in indexes:
            try:
                shards = set(json.loads(self._files.cat_file(f"{path}/{index}"))["weight_map"].values())
            except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
                return False
            if not all(isinstance(shard, str) and sizes.get(shard) for shard in shards):
                return False
        return bool(indexes)


def _stamp(found: Mapping[str, Any]) -> str:
    """Return what distinguishes a file from its replacement: an object's ETag, or a file's modification time."""
    return str(found.get("ETag") or found.get("mtime") or "")


def _name_of(path: object) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


def _weights(entry: Entry) -> str:
    """Return the path that an engine loads: the only GGUF file of a folder, else the file or folder itself."""
    ggufs = [file for file in entry.sizes if file.endswith(".gguf")]
    return f"{entry.path.rstrip('/')}/{ggufs[0]}" if len(ggufs) == 1 else entry.path
