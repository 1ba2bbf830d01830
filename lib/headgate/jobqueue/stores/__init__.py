"""Where jobs live: in memory, in a SQLite file or in a PostgreSQL database."""

from headgate.jobqueue.stores.memory import MemoryStore

__all__ = ["MemoryStore"]
