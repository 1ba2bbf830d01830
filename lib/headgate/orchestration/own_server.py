"""A Prefect server of one's own: for the demo and for tests, beside any other one and without touching it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from prefect import settings as prefect_settings

from headgate.core import errors
from headgate.orchestration.children import ChildProcess, child_process

FILE_LEASES: Final = "prefect.server.concurrency.lease_storage.filesystem"
"""Where leases of concurrency limits live; Prefect's default, memory, forgets them when the server restarts."""

_LEASES: Final = "concurrency_leases"
"""Where `FILE_LEASES` keeps them below `PREFECT_HOME`."""

_START_TIMEOUT_S: Final = 120.0
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 0.5
_SERVER_GRACE_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """A running Prefect server that belongs to this process.

    Attributes:
        url: its address, where the UI is.
        folder: its database, profiles, leases and logs; nothing is written elsewhere.
        process: what runs it.
    """

    url: str
    folder: Path
    process: ChildProcess = field(repr=False)

    @property
    def api_url(self) -> str:
        """What `PREFECT_API_URL` names."""
        return f"{self.url}/api"

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return `base` as a client of this server sees it: no other server, profile or key of Prefect is left in."""
        return _environ(self.folder, base) | {"PREFECT_API_URL": self.api_url}

    @contextmanager
    def as_client(self) -> Iterator[None]:
        """Make this process a client of this server while the context lasts."""
        settings = prefect_settings
        with settings.temporary_settings(
            {
                settings.PREFECT_API_URL: self.api_url,
                settings.PREFECT_API_KEY: None,
                settings.PREFECT_HOME: self.folder,
                settings.PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False,
                settings.PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False,
            }
        ):
            yield


@asynccontextmanager
async def private_server(
    folder: Path, *, port: int = 0, keep_leases: bool = False, log_requests: bool = False
) -> AsyncIterator[PrivateServer]:
    """Give a running server on loopback; it ends with the context, or with this process however that ends.

    A folder that was used before keeps its flow runs and artifacts.

    Args:
        folder: all of its state; made when it is missing.
        port: 0 takes a free one.
        keep_leases: whether leases of an earlier server in the folder live on; their holders must, too.
        log_requests: whether each request is a line of `server.log`.

    Raises:
        InvalidInputError: if the port is taken.
        OrchestratorUnreachableError: if it does not come up.
    """
    folder = folder.absolute()  # noqa: ASYNC240 - two quick calls, before anything runs beside them
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port(port)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(folder), "--factory"]
    command += ["headgate.orchestration.server_app:create_app", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--timeout-keep-alive", "5", "--timeout-graceful-shutdown", "2"]
    command += ["--log-level", "info" if log_requests else "warning"]
    environ = _server_environ(folder, port)
    if log_requests:
        environ["PREFECT_SERVER_LOGGING_LEVEL"] = "INFO"
    if not keep_leases:
        # Who held leases of an earlier server in this folder has ended with it.
        await asyncio.to_thread(shutil.rmtree, folder / _LEASES, ignore_errors=True)
    log = folder / "server.log"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=_SERVER_GRACE_S) as process:
        await _healthy(process, url)
        yield PrivateServer(url, folder, process)


def _environ(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in base.items() if not name.startswith("PREFECT_")}
    return kept | {
        "PREFECT_HOME": str(folder),
        "PREFECT_PROFILES_PATH": str(folder / "profiles.toml"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
        "PREFECT_CLI_PROMPT": "false",
        "PREFECT_LOGGING_COLORS": "false",
        "DO_NOT_TRACK": "1",
    }


def _server_environ(folder: Path, port: int) -> dict[str, str]:
    return _environ(folder, os.environ) | {
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder / 'prefect.db'}",
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_UI_API_URL": "/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": FILE_LEASES,
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT__SERVER_FINAL": "1",
    }


def free_port(wanted: int = 0) -> int:
    """Return a port of loopback that nobody listens on now: the one that is wanted, or any for 0.

    Raises:
        InvalidInputError: if the wanted one is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise errors.InvalidInputError(
                f"port {wanted} cannot be listened on: {error.strerror}", next_step="Choose another one, or 0 for any."
            ) from None
        return int(probe.getsockname()[1])


async def _healthy(process: ChildProcess, url: str) -> None:
    """Return once the server answers; it has no way to say so by itself, so it is asked, ever less often."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    pause_s = _FIRST_LOOK_S
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        while time.monotonic() < deadline:
            if process.has_ended:
                raise _not_up(process, f"ended with exit status {await process.ended()}")
            try:
                if (await client.get(f"{url}/api/health")).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pause_s = min(pause_s * 1.5, _LONGEST_LOOK_S)
            await asyncio.sleep(pause_s)
    raise _not_up(process, f"did not answer within {_START_TIMEOUT_S:g} s")


def _not_up(process: ChildProcess, what: str) -> errors.OrchestratorUnreachableError:
    return errors.OrchestratorUnreachableError(
        f"the private Prefect server {what}", next_step=f"It wrote to {process.log}:\n{process.last_lines()}"
    )
