"""Policy servers of the benchmark: names in the ledger, which nobody calls."""

from __future__ import annotations

from typing import Final

from headgate.bench.jobqueue.connection import Connection

POOL: Final = "team"


async def register(connection: Connection, count: int) -> None:
    """Register servers that serve every task."""
    servers = [{"pool": POOL, "host": "127.0.0.1", "port": 1 + number} for number in range(count)]
    await connection.post("/v1/resources", {"resources": servers})
