"""On what and with what a figure was measured."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import headgate

_PACKAGES: Final = (
    "aiohttp", "orjson", "polars", "pandera", "pydantic", "duckdb", "inspect-ai", "psycopg", "uvicorn", "uvloop",
    "procrastinate", "pgqueuer", "asyncpg",
)  # fmt: skip
"""Whose version can move a figure; one that is not installed is left out."""

_GIT_TIMEOUT_S: Final = 10.0


def versions() -> dict[str, str]:
    """Return the versions of Headgate, Python and what the figures depend on; the commit where there is a checkout."""
    found = {"headgate": headgate.__version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    commit = _commit()
    if commit:
        found["commit"] = commit
    return found


def machine() -> dict[str, Any]:
    """Return processor, cores, memory and kernel; nothing that names the machine or its owner."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }


def load() -> list[float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    """Return the commit of the checkout that Headgate runs from, with `+` when files of it were changed."""
    folder = Path(headgate.__file__).parent
    git = ["git", "-C", str(folder)]
    try:
        head = subprocess.run(  # noqa: S603 - fixed arguments
            [*git, "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
        ).stdout.strip()
        edited = subprocess.run(  # noqa: S603 - fixed arguments
            [*git, "status", "--porcelain", "--untracked-files=no", "."],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or an installed package
        return None
    return f"{head}+" if edited else head
