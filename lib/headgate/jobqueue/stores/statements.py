"""The SQL of the stores, by name, and the steps that lead from an empty database to the newest tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from headgate.durable import databases
from headgate.jobqueue.errors import StoreFailedError

Dialect = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the tables.

    Attributes:
        version: its number, from 1 without gaps.
        name: what it brings.
        sql: statements, run in one transaction.
    """

    version: int
    name: str
    sql: str


@cache
def statements(dialect: Dialect, filters: str = "") -> Mapping[str, str]:
    """Return the statements of a dialect by their names, with `:parameter` in the form that its driver reads.

    Args:
        dialect: which database reads them.
        filters: conditions that take the place of `{filters}` in those which have it.
    """
    found = {**databases.statements(__package__, "reading.sql"), **databases.statements(__package__, f"{dialect}.sql")}
    columns = found["job_columns"]
    whole = {name: sql.replace("{job_columns}", columns).replace("{filters}", filters) for name, sql in found.items()}
    if dialect == "sqlite":
        return whole
    return {name: databases.in_postgres(sql) for name, sql in whole.items()}


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Return the steps of a dialect in order."""
    folder = resources.files(__package__).joinpath("migrations", dialect)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(_migration(file.name, file.read_text(encoding="utf-8")) for file in files)


def steps_from(version: int, dialect: Dialect, place: str) -> tuple[Migration, ...]:
    """Return the steps that a database of a version (0: empty) still needs.

    Raises:
        StoreFailedError: when the database is newer than this Headgate.
    """
    known = migrations(dialect)
    newest = known[-1].version
    if version > newest:
        raise StoreFailedError(
            f"The job queue in {place} has tables of version {version}; this Headgate knows version {newest} at most",
            next_step="Use the Headgate that wrote it or a later one; nothing was changed.",
        )
    return tuple(step for step in known if step.version > version)


def check_version(version: int, dialect: Dialect, place: str) -> None:
    """Refuse a database that cannot be read as it is.

    Raises:
        StoreFailedError: when it has no tables of a job queue, or older or newer ones.
    """
    if steps_from(version, dialect, place):
        found = f"tables of version {version}" if version else "no job queue"
        raise StoreFailedError(
            f"There is {found} in {place}",
            next_step="Start the server on it once (`headgate jobqueue serve`), or name another one.",
        )


def _migration(file_name: str, sql: str) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    return Migration(version=int(number), name=name, sql=sql)
