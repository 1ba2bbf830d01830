"""Opens the store that a URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote

from headgate.core import redacted
from headgate.core.errors import InvalidInputError, MissingExtraError
from headgate.jobqueue.port import Store
from headgate.jobqueue.stores.memory import MemoryStore
from headgate.jobqueue.stores.sqlite import SqliteStore

_FORMS: Final = (
    "Write sqlite:///relative/file.db, sqlite:////absolute/file.db, postgresql://USER@HOST/DATABASE or memory:."
)


def open_store(url: str) -> Store:
    """Return the store of a URL; nothing is opened or made before `own` or `reader`.

    Args:
        url: `sqlite:///relative/file.db`, `sqlite:////absolute/file.db`, `postgresql://…` or `memory:`.

    Raises:
        InvalidInputError: when the URL has another form.
        MissingExtraError: when it names PostgreSQL and its driver is not installed.
    """
    scheme, colon, rest = url.strip().partition(":")
    if colon and scheme == "memory" and rest in {"", "//"}:
        return MemoryStore()
    if colon and scheme == "sqlite":
        return SqliteStore(_path_of(rest, url))
    if colon and scheme in {"postgresql", "postgres"} and rest.startswith("//"):
        return _postgres(f"postgresql:{rest}")
    raise InvalidInputError(
        f"A job queue's database must be named by a sqlite, postgresql or memory URL (got {_shown(url)})",
        next_step=_FORMS,
    )


def _path_of(rest: str, url: str) -> Path:
    path = unquote(rest.removeprefix("///"))
    if not rest.startswith("///") or not path.strip("/") or path.endswith("/"):
        raise InvalidInputError(
            f"A sqlite URL must have three slashes and the path of a file behind them (got {_shown(url)})",
            next_step=_FORMS,
        )
    if "\0" in path or "?" in rest or "#" in rest:
        raise InvalidInputError(
            f"A sqlite URL must be a path alone, without options (got {_shown(url)})",
            next_step="Leave out what follows ? or #; a ? or # in the path itself is written %3F or %23.",
        )
    return Path(path)


def _shown(url: str) -> str:
    """Return a URL for a message; of one that may hold a password, in whatever place, only the beginning."""
    return repr(redacted(url)) if "@" not in url else repr(url.partition(":")[0] + ":…")


def _postgres(url: str) -> Store:
    try:
        from headgate.jobqueue.stores.postgres import PostgresStore  # noqa: PLC0415 - an optional extra
        from headgate.jobqueue.stores.postgres_connection import Address  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("A job queue in PostgreSQL", "postgres") from error
    return PostgresStore(Address(url))
