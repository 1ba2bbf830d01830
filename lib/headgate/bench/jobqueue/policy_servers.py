"""Policy servers of the benchmark: names in the ledger, which nobody calls."""

from __future__ import annotations

from headgate.bench.jobqueue.connection import Connection


async def register(connection: Connection, pool: str, count: int) -> None:
    """Register servers of a pool that serve every task."""
    servers = [{"pool": pool, "host": f"{pool}.example.com", "port": 1 + number} for number in range(count)]
    await connection.post("/v1/resources", {"resources": servers})
