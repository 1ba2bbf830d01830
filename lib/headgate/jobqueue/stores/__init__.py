"""Where jobs live: in memory, in a SQLite file or in a PostgreSQL database."""

from headgate.jobqueue.stores.memory import MemoryStore
from headgate.jobqueue.stores.opening import open_store
from headgate.jobqueue.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "open_store"]
