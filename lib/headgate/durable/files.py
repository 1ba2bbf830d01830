"""Atomic writing of files: a reader sees the old ones or the new ones, never half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.core.errors import InvalidInputError

_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


def write_whole(files: Mapping[Path, bytes]) -> None:
    """Write files, each complete and flushed before the first of them replaces an old one; creates missing folders.

    A new file gets the mode of the umask; an existing one keeps its mode.

    Raises:
        OSError: if one cannot be written; then none was replaced, unless renaming itself failed.
        ValueError: if a name is not possible for a file.
    """
    written: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            target = path.resolve()  # through links: the rename would replace the link instead of its target
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(target))
            target.parent.mkdir(parents=True, exist_ok=True)
            written[target] = written_beside(target, data)
        for target, temporary in written.items():
            temporary.replace(target)
        for folder in {target.parent for target in written}:
            flush_folder(folder)
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def private_folder(name: str) -> Path:
    """Return this user's own folder of a name among the system's temporary files, creating it if needed.

    Raises:
        InvalidInputError: it cannot be created, or others may write in it: any user may create it first, or a link.
    """
    folder, whose = Path(tempfile.gettempdir()) / f"headgate-{name}-{os.getuid()}", "no folder"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode):
            if found.st_uid == os.getuid() and not found.st_mode & 0o022:
                return folder
            whose = f"owned by user {found.st_uid}, mode {found.st_mode & 0o7777:o}"
    except OSError as error:
        whose = str(error)
    said = f"{folder} must be a folder that only user {os.getuid()} may write in ({whose})"
    raise InvalidInputError(said, next_step="Remove it, or set TMPDIR to a folder of your own.")


def written_beside(target: Path, data: bytes) -> Path:
    """Return a new file in the target's folder, flushed, with the target's mode if that exists."""
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


def linked(temporary: Path, path: Path) -> bool:
    """Give a file its name if no other file has it; return whether the name was free."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # File systems without hard links (exFAT, some network shares) leave a race between check and rename.
        if path.exists():
            return False
        temporary.rename(path)
    return True


def flush_folder(folder: Path) -> None:
    """Flush a folder, which makes the names of its files durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
