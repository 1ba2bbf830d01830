"""A real S3 server for the tests of the store, and stores in a folder and in a bucket."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import boto3
import psycopg
import pytest
from botocore.loaders import JSONFileLoader  # type: ignore[import-untyped]

from headgate.core import Secret
from headgate.durable.databases import PostgresAddress
from headgate.storage import SampleStore, StoreLocation
from headgate.storage.journal_database import JournalPlace
from headgate.storage.objects import ObjectStore
from headgate.storage.store import open_objects
from headgate_bench.postgres import PrivatePostgres
from tests.storage.faults import Proxy, proxy_before

BUCKET = "headgate-tests"
KEY, SECRET = "testing-access-key", "testing-secret-key"


@pytest.fixture(scope="module")
def journal_database(postgres_server: PrivatePostgres) -> Iterator[str]:
    """The address of a database for the journals of a module."""
    with postgres_server.fresh_database() as url:
        yield url


@pytest.fixture
def postgres_place(journal_database: str) -> Iterator[PostgresAddress]:
    """A database whose journals are empty: making their tables takes longer than most tests."""
    yield PostgresAddress(journal_database)
    with psycopg.connect(journal_database, autocommit=True) as connection:
        connection.execute(_EMPTY)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> JournalPlace:
    """An empty place for journals: a folder, or a database."""
    found: JournalPlace = request.getfixturevalue({"sqlite": "tmp_path", "postgres": "postgres_place"}[request.param])
    return found


_EMPTY = """
DO $$
DECLARE place text; name text;
BEGIN
  FOR place, name IN SELECT schemaname, tablename FROM pg_tables WHERE schemaname LIKE 'headgate_journal_%' LOOP
    EXECUTE format(CASE name
      WHEN 'turn' THEN $a$UPDATE %I.%I SET holder = '', last_position = 0, buried = 0$a$
      WHEN 'meta' THEN $a$DELETE FROM %I.%I WHERE key NOT IN ('schema_version', 'campaign', 'journal_id')$a$
      ELSE 'DELETE FROM %I.%I' END, place, name);
  END LOOP;
END
$$
"""


_SERVER = """
import sys, logging
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def s3_address() -> Iterator[tuple[str, int]]:
    """Host and port of an S3 server with an empty bucket, in a process of its own; its listings have short pages.

    What botocore knows of S3 is read once: each of its clients would parse megabytes of JSON.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": "7"},
    )
    with process, pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", staticmethod(cache(JSONFileLoader().load_file)))
        assert process.stdout is not None
        assert process.stdin is not None
        host, port = "127.0.0.1", int(process.stdout.readline())
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield host, port
        process.stdin.close()


@pytest.fixture
def s3_objects(s3_address: tuple[str, int]) -> Iterator[Callable[..., ObjectStore]]:
    """Open an empty prefix of the bucket, always the same within a test; through a proxy if one is given."""
    prefix = f"test/{secrets.token_hex(6)}"
    opened = []

    def open_prefix(proxy: Proxy | None = None, *, call_timeout_s: float = 20.0) -> ObjectStore:
        host, port = s3_address
        location = StoreLocation(
            f"s3://{BUCKET}/{prefix}",
            endpoint_url=proxy.url if proxy else f"http://{host}:{port}",
            region="us-east-1",
            key=Secret(KEY),
            secret=Secret(SECRET),
            call_timeout_s=call_timeout_s,
        )
        opened.append(open_objects(location, {}))
        return opened[-1]

    yield open_prefix
    for objects in opened:
        objects.close()


@pytest.fixture
def proxy(s3_address: tuple[str, int]) -> Iterator[Proxy]:
    """A proxy before the S3 server."""
    with proxy_before(s3_address) as running:
        yield running


@pytest.fixture
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty object store in a folder; in a bucket, too, for tests that are marked `IN_BOTH`."""
    if getattr(request, "param", "folder") == "folder":
        return open_objects(StoreLocation(str(tmp_path / "store")), {})
    opened: ObjectStore = request.getfixturevalue("s3_objects")()
    return opened


@pytest.fixture
def store(objects: ObjectStore) -> SampleStore:
    """An empty sample store, where `objects` are."""
    return SampleStore(objects)


@pytest.fixture
def folder_store(tmp_path: Path) -> SampleStore:
    """An empty sample store in a folder, `tmp_path / "store"`."""
    return SampleStore(open_objects(StoreLocation(str(tmp_path / "store")), {}))
