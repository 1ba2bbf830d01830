"""What outlives a process, and whose it is; offered as modules.

`sqlite` opens SQLite files, runs transactions and tells damage; `databases` reads their URLs and named statements, for
PostgreSQL, too; `locks` says who owns a file; `files` writes files whole or not at all.
"""

__all__ = ["databases", "files", "locks", "sqlite"]
