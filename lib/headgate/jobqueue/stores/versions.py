"""Which version of the tables a database has, and what leads from there to the newest one."""

from __future__ import annotations

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.stores.statements import Dialect, Migration, migrations


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
