"""TLS with a certificate of one's own: every server speaks it, every client trusts an authority of one's own."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from headgate.core.errors import InvalidSettingError
from headgate.elastic.gateway import GatewayClient
from headgate.jobqueue.policy import PolicyClient, PolicyServer, PolicyUnreachableError, baseline_policy
from headgate.jobqueue.server import load_server_settings
from headgate.jobqueue.server.health_checks import trouble_of
from headgate.jobqueue.worker import JobQueueClient, SyncJobQueueClient
from headgate.net import listener
from headgate.net.tls import server_context
from tests.net.certificates import Files, certificates, private
from tests.net.servers import SERVERS, connected


@dataclass(frozen=True)
class Served:
    url: str
    files: Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return certificates(tmp_path)


@pytest.fixture(params=SERVERS)
async def served(request: pytest.FixtureRequest, tmp_path: Path, files: Files) -> AsyncIterator[Served]:
    async with SERVERS[request.param](tmp_path) as url:
        yield Served(url, files)


async def test_every_server_speaks_tls_with_the_certificate_that_it_is_given(served: Served) -> None:
    assert served.url.startswith("https://127.0.0.1:")
    trusted = ssl.create_default_context(cafile=str(served.files.authority))
    async with httpx.AsyncClient(base_url=served.url, verify=trusted, trust_env=False) as http:
        for _ in range(2):
            assert (await http.get("/health")).status_code == 200


async def test_who_does_not_trust_the_authority_is_told_and_nothing_is_served_in_plain(served: Served) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await http.get(f"{served.url}/health")
        with pytest.raises(httpx.TransportError):
            await http.get(f"{served.url.replace('https', 'http')}/health")


async def test_a_slow_handshake_ends_the_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_S", 0.1)
    reader, writer = await connected(served.url)
    assert await reader.read() == b""
    writer.close()


async def test_workers_and_clients_trust_the_authority_that_ssl_cert_file_names(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
    async with SERVERS["jobqueue"](tmp_path) as url, JobQueueClient(url) as queue:
        assert (await queue.statistics()).workers == 0

        def ask() -> int:
            with SyncJobQueueClient(url) as client:
                return client.statistics().workers

        assert await asyncio.to_thread(ask) == 0
    async with SERVERS["gateway"](tmp_path) as url:
        with GatewayClient(url) as client:
            assert (await asyncio.to_thread(client.status)).pool.name == "tests"


async def test_a_policy_server_speaks_tls_to_workers_and_to_health_checks(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = server_context(str(files.certificate), str(files.key))
    async with PolicyServer(baseline_policy("random"), tls=tls) as server:
        assert server.url == f"wss://127.0.0.1:{server.port}"
        with pytest.raises(PolicyUnreachableError):
            await PolicyClient("wss://127.0.0.1", server.port).connect()
        assert "CERTIFICATE_VERIFY_FAILED" in await trouble_of("wss://127.0.0.1", server.port, 5)
        monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
        async with PolicyClient("wss://127.0.0.1", server.port) as client:
            assert client.metadata["policy"] == "baseline-random"
        assert await trouble_of("wss://127.0.0.1", server.port, 5) == ""
        with pytest.raises(PolicyUnreachableError):
            await PolicyClient("127.0.0.1", server.port).connect()
        assert await trouble_of("127.0.0.1", server.port, 5)


async def test_calls_of_models_trust_it_as_well(tmp_path: Path, files: Files) -> None:
    asks = (
        "import asyncio, sys\n"
        "from headgate.models.client import Connections\n"
        "async def main():\n"
        "    async with Connections(connect_s=5, use_environment_proxy=False) as connections:\n"
        "        async with await connections._session() as http, http.get(sys.argv[1]) as answer:\n"
        "            print(answer.status)\n"
        "asyncio.run(main())\n"
    )
    async with SERVERS["endpoint"](tmp_path) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", asks, f"{url}/health", stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "SSL_CERT_FILE": str(files.authority)},
        )  # fmt: skip
        said, _ = await process.communicate()
    assert said.split() == [b"200"]


def test_the_job_queue_reads_the_pair_of_variables_of_all_servers() -> None:
    settings = load_server_settings(environ={"HEADGATE_TLS_CERTIFICATE": "c.pem", "HEADGATE_TLS_KEY": "k.pem"})
    assert (settings.tls_certificate, settings.tls_key) == ("c.pem", "k.pem")


def test_a_key_may_stand_in_the_file_of_its_certificate(files: Files) -> None:
    files.certificate.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    assert server_context(str(files.certificate), "") is not None
    assert server_context("", "") is None


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("certificate.pem", "absent.pem", "tls_key: the file .*absent.pem' cannot be read: No such file"),
        ("absent.pem", "key.pem", "tls_certificate: the file .*absent.pem' cannot be read: No such file"),
        ("", "key.pem", "tls_certificate: the file '' is not named"),
        ("key.pem", "key.pem", "tls_certificate: the file .*key.pem' has no line that ends in CERTIFICATE-----"),
        ("certificate.pem", "", "tls_certificate: the file .*certificate.pem' has no line that ends in PRIVATE KEY"),
        ("certificate.pem", "other.pem", "tls_key: the file .*other.pem' is not the key of the certificate in"),
        ("certificate.pem", "locked.pem", "tls_key: the file .*locked.pem' cannot be used: it is damaged, or encrypt"),
        ("certificate.pem", "damaged.pem", "tls_key: the file .*damaged.pem' cannot be used"),
    ],
)
def test_what_is_wrong_with_the_files_is_told_at_the_start(
    tmp_path: Path, files: Files, certificate: str, key: str, said: str
) -> None:
    (tmp_path / "other.pem").write_bytes(private(ec.generate_private_key(ec.SECP256R1())))
    (tmp_path / "locked.pem").write_bytes(private(ec.generate_private_key(ec.SECP256R1()), b"secret"))
    (tmp_path / "damaged.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n")

    def path(name: str) -> str:
        return str(tmp_path / name) if name else ""

    with pytest.raises(InvalidSettingError, match=said):
        server_context(path(certificate), path(key))
