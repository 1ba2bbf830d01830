"""Database URLs and named SQL statements of packages, for SQLite and PostgreSQL alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from headgate.core import Secret, redacted
from headgate.core.errors import InvalidInputError, JournalError, MissingExtraError

_FORMS: Final = (
    "Write sqlite:///relative/file.db, sqlite:////absolute/file.db, postgresql://USER@HOST/DATABASE or memory:."
)
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")
_DEFAULTS: Final = {
    "connect_timeout": "10",
    # A machine that vanishes closes no connection: without these, its lock would stay for hours, and a commit would
    # wait a quarter of an hour for an error.
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "40000",
}


class DatabaseAwayError(JournalError):
    """A database cannot be reached, or cannot be written for now; no part of the transaction has happened."""

    next_step = "Check that its server runs and can be reached; nothing is lost."


class PostgresAddress:
    """The address of a PostgreSQL database. `str` of it is for messages and has no password."""

    def __init__(self, url: str) -> None:
        """Take a `postgresql://` URL.

        Raises:
            InvalidInputError: when libpq cannot read it.
            MissingExtraError: when the driver is not installed.
        """
        try:
            import psycopg  # noqa: PLC0415 - of an optional extra
            from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError("A PostgreSQL database", "postgres") from error
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # libpq's message may quote the part that contains the password.
            raise InvalidInputError(
                "The address of the PostgreSQL database cannot be read (it is not shown: it may hold a password)",
                next_step="Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters as %XX.",
            ) from None
        self._secret = Secret(str(parts.get("password") or ""))
        self._parameters = {
            name: str(value) for name, value in parts.items() if name != "password" and value is not None
        }

    def parameters(self) -> dict[str, Any]:
        """Return the connection parameters for libpq, including the password."""
        password = {"password": self._secret.reveal()} if self._secret else {}
        return {**_DEFAULTS, **self._parameters, **password}

    def url(self) -> str:
        """Return a URL of it with its password, for another process."""
        return f"postgresql:///?{urlencode(self.parameters(), quote_via=quote)}"

    def __str__(self) -> str:
        host = self._parameters.get("host") or "localhost"
        port = f":{self._parameters['port']}" if "port" in self._parameters else ""
        return f"postgresql://{host}{port}/{self._parameters.get('dbname', '')}"


def place_of(url: str) -> Path | PostgresAddress | None:
    """Return the database that a URL names: SQLite's file, PostgreSQL's address, or None for memory.

    Raises:
        InvalidInputError: when the URL has another form.
        MissingExtraError: when it names PostgreSQL and its driver is not installed.
    """
    scheme, colon, rest = url.strip().partition(":")
    if colon and scheme == "memory" and rest in {"", "//"}:
        return None
    if colon and scheme == "sqlite":
        return _path_of(rest, url)
    if colon and scheme in {"postgresql", "postgres"} and rest.startswith("//"):
        return PostgresAddress(f"postgresql:{rest}")
    raise InvalidInputError(
        f"A job queue's database must be named by a sqlite, postgresql or memory URL (got {_shown(url)})",
        next_step=_FORMS,
    )


@cache
def statements(package: str, file_name: str, *, for_postgres: bool = False) -> Mapping[str, str]:
    """Return the statements of a package's `.sql` file by their names, each given by a line `-- name: …`.

    Args:
        package: the package that contains the file.
        file_name: the file's name.
        for_postgres: convert `:parameter` to psycopg's syntax.
    """
    text = resources.files(package).joinpath(file_name).read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    named = dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))
    return {name: in_postgres(sql) for name, sql in named.items()} if for_postgres else named


def in_postgres(sql: str) -> str:
    """Return a statement with `:parameter` or `?` in psycopg's syntax."""
    return _PARAMETER.sub(r"%(\1)s", sql).replace("?", "%s")


def _path_of(rest: str, url: str) -> Path:
    path = unquote(rest.removeprefix("///"))
    if not rest.startswith("///") or not path.strip("/") or path.endswith("/"):
        raise InvalidInputError(
            f"A sqlite URL must have three slashes and the path of a file after them (got {_shown(url)})",
            next_step=_FORMS,
        )
    if "\0" in path or "?" in rest or "#" in rest:
        raise InvalidInputError(
            f"A sqlite URL must be a path alone, without options (got {_shown(url)})",
            next_step="Leave out what follows ? or #; write a ? or # in the path itself as %3F or %23.",
        )
    return Path(path)


def _shown(url: str) -> str:
    """Return a URL for a message; only the scheme of one that may contain a password anywhere."""
    if "@" not in url:
        return repr(redacted(url))
    scheme = url.partition(":")[0]
    return repr(f"{scheme}:…") if "@" not in scheme else "an address with a password"
