"""What outlives a process, and whose it is; offered as modules.

`sqlite` opens SQLite files, runs transactions and tells damage; `postgres` connects to PostgreSQL, where its driver is
installed; `databases` reads URLs and named statements of both; `locks` says who owns a file;
`files` writes files whole or not at all.
"""

__all__ = ["databases", "files", "locks", "postgres", "sqlite"]
