"""Connections to PostgreSQL: whom to reach, and what holds for every one of them."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headgate.core import Secret
from headgate.core.errors import InvalidInputError

_DEFAULTS: Final = {
    "connect_timeout": "10",
    # A machine that vanishes says no goodbye: without these, its lock would stay for hours, and a commit would wait for
    # a quarter of an hour to be told.
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "40000",
}
_SETTINGS: Final = {
    "search_path": "headgate_jobqueue",
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "client_min_messages": "error",
    "jit": "off",
}
_READERS_SETTINGS: Final = {
    "default_transaction_read_only": "on",
    # Only a plan made for the very state that is asked for can use the index of that state.
    "plan_cache_mode": "force_custom_plan",
}
# Every statement of the ledger finds its rows by an index. Its prepared plans live long: one that was made while the
# table was small would otherwise read the whole table for every commit when it has grown.
_WRITERS_SETTINGS: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    # Nobody else locks these tables for long; a commit that hangs would hold up every worker.
    "lock_timeout": "20000",
}


class Address:
    """Where a database is. Its text is for messages: no password."""

    def __init__(self, url: str) -> None:
        """Take a `postgresql://` URL.

        Raises:
            InvalidInputError: when libpq cannot read it.
        """
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # What libpq says may quote the part that holds the password.
            raise InvalidInputError(
                "The address of the PostgreSQL database cannot be read (it is not shown: it may hold a password)",
                next_step="Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters as %XX.",
            ) from None
        self._secret = Secret(str(parts.get("password") or ""))
        self._parameters = {
            name: str(value) for name, value in parts.items() if name != "password" and value is not None
        }

    def parameters(self) -> dict[str, Any]:
        """Return what libpq is called with, the password included."""
        password = {"password": self._secret.reveal()} if self._secret else {}
        return {**_DEFAULTS, **self._parameters, **password}

    def __str__(self) -> str:
        host = self._parameters.get("host") or "localhost"
        port = f":{self._parameters['port']}" if "port" in self._parameters else ""
        return f"postgresql://{host}{port}/{self._parameters.get('dbname', '')}"


def connected(address: Address, application_name: str, *, writes: bool) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection in autocommit mode, prepared for the ledger or for listings.

    Raises:
        psycopg.Error: when it cannot be made.
    """
    # The server cuts a name at 63 bytes, and takes ASCII only.
    parameters = {**address.parameters(), "application_name": ascii(application_name)[1:-1][:63]}
    db = psycopg.connect(**parameters, autocommit=True)
    try:
        settings = {**_SETTINGS, **(_WRITERS_SETTINGS if writes else _READERS_SETTINGS)}
        for name, value in settings.items():
            db.execute("SELECT set_config(%s, %s, false)", (name, value))
    except psycopg.Error:
        db.close()
        raise
    return db
