"""Weights on this node: paths are used as they are, weights in S3 are fetched once for all engines of the node."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headgate.core import redacted
from headgate.durable.locks import FileLock
from headgate.elastic.errors import EngineError

FOLDER_VARIABLE: Final = "HEADGATE_WEIGHTS_CACHE"
"""Variable with the folder for fetched weights; `~/.cache/headgate/weights` if it is not set."""

ROOM_VARIABLE: Final = "HEADGATE_WEIGHTS_CACHE_GB"
"""Variable with the size limit of that folder, in units of 10**9 bytes."""

_USUAL_GB: Final = 200.0
_KEPT_S: Final = 3_600.0
"""Weights used within the last hour may still be being read, and are not removed for others."""

_ADDRESS: Final = re.compile(r"(s3|r2|file)://.+")


async def weights_here(weights: str) -> str:
    """Return where an engine of this node finds its weights: a path, or a name that the engine itself looks up.

    Raises:
        EngineError: they do not exist, or cannot be fetched.
    """
    return await asyncio.to_thread(_here, weights)


def size_of(weights: str | Path) -> int:
    """Return the size in bytes of weights on this node; 0 for a name that the engine itself looks up."""
    path, size = Path(weights), 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):  # a training may just have removed it
            size += file.stat().st_size if file.is_file() else 0
    return size


def _here(weights: str) -> str:
    if weights.startswith("/") and not Path(weights).exists():
        said = f"the weights {weights} are not on this node: put them there, or correct `weights`"
        raise EngineError(said, is_final=True)
    if not _ADDRESS.match(weights):
        return weights
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache/headgate/weights")
    try:
        return str(_fetched(weights, folder))
    except EngineError:
        raise
    except FileNotFoundError:
        raise EngineError(f"there are no weights at {weights}", is_final=True) from None
    except ImportError as error:
        raise EngineError(f"weights at {weights} need the extra `run` of headgate: {error}", is_final=True) from None
    except Exception as error:  # s3fs lets through whatever botocore and aiohttp raise
        said = redacted(f"{type(error).__name__}: {error}", limit_chars=300)
        raise EngineError(f"the weights {weights} could not be fetched: {said}") from error


def _fetched(address: str, folder: Path) -> Path:
    """Return a local copy of the current weights at an address; a later version there gets another copy."""
    import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415 - a third of a second, for those who fetch

    files, root = fsspec.core.url_to_fs(address)
    files.invalidate_cache()
    found: Mapping[str, Mapping[str, Any]] = files.find(root, detail=True)
    if not found:
        raise FileNotFoundError(address)
    version = repr(sorted((name, facts["size"], str(facts.get("ETag", ""))) for name, facts in found.items()))
    name = re.sub(r"[^A-Za-z0-9._-]", "-", root.rstrip("/").rpartition("/")[2]) or "weights"
    copy = folder / hashlib.blake2b(f"{address} {version}".encode(), digest_size=10).hexdigest()
    lock = FileLock(folder / f"{copy.name}.lock")
    lock.take(waits=True)
    try:
        if not copy.exists():
            _make_room(folder, sum(int(facts["size"]) for facts in found.values()))
            partial = folder / f"{copy.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            for each in found:
                target = partial / name / each.removeprefix(root).lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                files.get_file(each, str(target if each != root else partial / name))
            partial.rename(copy)
        os.utime(copy)
    finally:
        lock.give_back()
    return copy / name


def _make_room(folder: Path, wanted_bytes: int) -> None:
    """Remove the least recently used copies until there is room for `wanted_bytes`.

    Raises:
        EngineError: there is not enough room.
    """
    limit = float(os.environ.get(ROOM_VARIABLE) or _USUAL_GB) * 1e9
    copies = sorted((each for each in folder.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    sizes = {each: size_of(each) for each in copies}
    room = min(limit - sum(sizes.values()), shutil.disk_usage(folder).free)
    for each, size in sizes.items():
        if room >= wanted_bytes or each.stat().st_mtime > time.time() - _KEPT_S:
            break
        shutil.rmtree(each, ignore_errors=True)
        room += size
    if room < wanted_bytes:
        raise EngineError(
            f"{folder} has no room for {wanted_bytes / 1e9:.1f} GB of weights ({max(room, 0) / 1e9:.1f} GB are left)",
            next_step=f"Set {FOLDER_VARIABLE} to a larger disk, or {ROOM_VARIABLE} to more.",
        )
