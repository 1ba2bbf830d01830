"""Artifacts: the result of one run of a scenario, as a JSON file."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import orjson

import headgate
from headgate.core.errors import InvalidInputError

Side = Literal["at_least", "at_most"]

_NOTHING: Mapping[str, float | str] = {}


@dataclass(frozen=True, slots=True)
class Bar:
    """One measured figure and the bar that it has to meet.

    Attributes:
        id: stable name, e.g. `P1`; a heading in docs/reference/benchmarks.md explains it.
        what: description of the figure.
        value: the measured value.
        unit: unit of value and bar.
        bar: the required value.
        side: the good side of the bar.
        beside: values of rivals and controls in the same run, by name; a text if one was not run.
    """

    id: str
    what: str
    value: float
    unit: str
    bar: float
    side: Side
    beside: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the value is on the good side of the bar; NaN never is."""
        return self.value >= self.bar if self.side == "at_least" else self.value <= self.bar


def at_least(
    name: str, what: str, value: float, bar: float, unit: str, beside: Mapping[str, float | str] = _NOTHING
) -> Bar:
    """Return a bar that a value must reach."""
    return Bar(name, what, value, unit, bar, "at_least", beside)


def at_most(
    name: str, what: str, value: float, bar: float, unit: str, beside: Mapping[str, float | str] = _NOTHING
) -> Bar:
    """Return a bar that a value must not exceed."""
    return Bar(name, what, value, unit, bar, "at_most", beside)


_PACKAGES: Final = (
    "aiohttp", "orjson", "polars", "pandera", "pydantic", "duckdb", "inspect-ai", "psycopg", "uvicorn", "uvloop",
    "procrastinate", "pgqueuer", "asyncpg",
)  # fmt: skip
"""Packages whose version can change a figure; those not installed are left out."""

_GIT_TIMEOUT_S: Final = 10.0


def versions() -> dict[str, str]:
    """Return the versions of Headgate, Python and packages that affect figures, and the commit in a checkout."""
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
    """Return processor, cores, memory and kernel; nothing that identifies the machine or its owner."""
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
    """Return the commit of the checkout that Headgate runs from, with `+` for uncommitted changes; None without one."""
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


FORMAT: Final = 1
"""Version of the artifact format."""


def bar_document(bar: Bar) -> dict[str, Any]:
    """Return a bar as artifacts and `--json` show it."""
    return asdict(bar) | {"met": bar.met}


def document_of(parts: Mapping[str, Any]) -> bytes:
    """Return an artifact's bytes."""
    return orjson.dumps(parts, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=_plain) + b"\n"


def write_artifact(folder: Path, artifact: Mapping[str, Any]) -> Path:
    """Write an artifact into `folder` and return its path.

    Raises:
        InvalidInputError: if the folder cannot be written to.
    """
    path = folder / f"{artifact['scenario']}-{artifact['id']}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(document_of(artifact))
    except OSError as error:
        raise InvalidInputError(
            f"artifact {path} cannot be written: {error.strerror}", next_step="Choose another folder with --output."
        ) from None
    return path


def write_files(folder: Path, name: str, files: Mapping[str, str | bytes]) -> list[str]:
    """Write documents into `folder / name` and return their paths below `folder`; create no folder if there are none.

    Raises:
        InvalidInputError: if the folder cannot be written to.
    """
    place = folder / name
    try:
        if files:
            place.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (place / file).write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InvalidInputError(
            f"folder {place} cannot be written to: {error.strerror}",
            next_step="Choose another folder with --output.",
        ) from None
    return [f"{name}/{file}" for file in files]


def newest_artifacts(folder: Path) -> list[dict[str, Any]]:
    """Return the newest artifact of each scenario in `folder`, sorted by scenario name.

    Raises:
        InvalidInputError: if there is none, or a file is not an artifact.
    """
    newest: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        artifact = _read(path)
        name = artifact["scenario"]
        if name not in newest or artifact["finished_at"] > newest[name]["finished_at"]:
            newest[name] = artifact
    if not newest:
        raise InvalidInputError(
            f"there is no artifact in {folder}", next_step="Run a scenario first: headgate bench --all --quick."
        )
    return [newest[name] for name in sorted(newest)]


def _read(path: Path) -> dict[str, Any]:
    try:
        artifact = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InvalidInputError(
            f"artifact {path} cannot be read: {error}", next_step="Delete the file, or choose another --output."
        ) from None
    if not isinstance(artifact, dict) or artifact.get("format") != FORMAT or "scenario" not in artifact:
        raise InvalidInputError(
            f"{path} is not an artifact of format {FORMAT}", next_step="Keep artifacts in a folder of their own."
        )
    return artifact


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
