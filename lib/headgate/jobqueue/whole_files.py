"""Writing files so that a reader sees the old ones or the new ones, never half of one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.jobqueue.errors import InvalidJobError


def json_bytes(document: Any) -> bytes:
    """Return a document as files have it: the same bytes for the same document, with a newline at the end."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files, each whole and flushed before the first of them replaces what was there.

    A new file has the mode that the umask gives, and one that exists keeps its mode.

    Raises:
        InvalidJobError: if one cannot be written; then none was replaced, unless renaming itself failed.
    """
    written: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            target = path.resolve()  # through a link: the rename would replace the link and not what it names
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(target))
            target.parent.mkdir(parents=True, exist_ok=True)
            written[target] = written_beside(target, data)
        for target, temporary in written.items():
            temporary.replace(target)
        for folder in {target.parent for target in written}:
            flush_folder(folder)
    except (OSError, ValueError) as error:
        named = getattr(error, "filename", None) or ", ".join(str(path) for path in files)
        said = getattr(error, "strerror", None) or str(error)
        raise InvalidJobError(
            f"{named} cannot be written: {said}", next_step="Choose a folder that can be written."
        ) from None
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def written_beside(target: Path, data: bytes) -> Path:
    """Return a new file in the folder of a target, flushed, with the mode that the target has if it exists."""
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}-{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), target.stat().st_mode & 0o7777)
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def flush_folder(folder: Path) -> None:
    """Make the names of files in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
