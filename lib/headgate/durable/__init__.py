"""Durable state and its ownership; exported as modules.

`sqlite` opens SQLite files, runs transactions and reports damage; `postgres` connects to PostgreSQL, where its driver
is installed; `databases` reads URLs and named statements of both; `locks` gives a file one owner at a time; `files`
writes files whole or not at all.
"""

__all__ = ["databases", "files", "locks", "postgres", "sqlite"]
