"""A private PostgreSQL server, for benchmarks and tests."""

from headgate_bench.postgres.binaries import PostgresFailedError, PostgresMissingError
from headgate_bench.postgres.server import PrivatePostgres

__all__ = ["PostgresFailedError", "PostgresMissingError", "PrivatePostgres"]
