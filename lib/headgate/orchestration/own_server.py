"""Prefect servers that Headgate starts: private ones for the demo and tests, and the user's own on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import httpx
from prefect import settings as prefect_settings
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType
from prefect.states import Cancelled, Crashed

import headgate
from headgate.core import errors
from headgate.net.listener import free_port
from headgate.processes import ChildProcess, child_process, last_lines

_UNDER_WAY: Final = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_AT_ONCE: Final = 200


async def clear_leftovers() -> None:
    """Free every slot and end every run that is in progress or due. Call it before a worker of the server starts.

    A private server's processes end with it, so nothing can still hold a slot or run. A slot left taken would block
    the next run of a deployment with a limit; a run left due would start beside the new one.
    """
    async with get_client() as client:
        await _end_runs(client, _in(_UNDER_WAY), Crashed(message="The server and the worker of this run were ended."))
        due = _in([StateType.SCHEDULED])
        due.expected_start_time = FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))
        await _end_runs(client, due, Cancelled(message="The server was ended before this run began."))
        for limit in await client.read_global_concurrency_limits(limit=_AT_ONCE, offset=0):
            if limit.active_slots:
                freed = GlobalConcurrencyLimitUpdate(active_slots=0)
                await client.update_global_concurrency_limit(limit.name, freed)


def _in(states: list[StateType]) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=states)))


async def _end_runs(client: PrefectClient, chosen: FlowRunFilter, ended: State[Any]) -> None:
    while runs := await client.read_flow_runs(flow_run_filter=chosen, limit=_AT_ONCE):
        for run in runs:
            await client.set_flow_run_state(run.id, ended, force=True)


FILE_LEASES: Final = "prefect.server.concurrency.lease_storage.filesystem"
"""Storage for leases of concurrency limits; Prefect's default, memory, loses them when the server restarts."""

_LEASES: Final = "concurrency_leases"
"""The folder of `FILE_LEASES` below `PREFECT_HOME`."""

_PID_FILE: Final = "server.pid"
"""File below `PREFECT_HOME` in which `prefect server stop` finds the process to end."""

_HEALTH: Final = "/api/health"
_START_TIMEOUT_S: Final = 120.0
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 0.5
_SERVER_GRACE_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """A running Prefect server that belongs to this process.

    Attributes:
        url: the server's address, where the UI is.
        folder: holds its database, profiles, leases and logs; nothing is written elsewhere.
    """

    url: str
    folder: Path
    process: ChildProcess = field(repr=False)

    @property
    def api_url(self) -> str:
        """The value for `PREFECT_API_URL`."""
        return f"{self.url}/api"

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return `base` for a client of this server, without any other Prefect server's address, profile or key."""
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
    folder: Path, *, port: int = 0, keep_leases: bool = False, log_requests: bool = False, database: str = ""
) -> AsyncIterator[PrivateServer]:
    """Start a server on loopback and yield it; it ends with the context, or with this process however that ends.

    A folder that was used before keeps its flow runs and artifacts.

    Args:
        folder: holds all of its state; created if missing.
        port: 0 picks a free one.
        keep_leases: whether leases of an earlier server in the folder stay valid; their holders must live on, too.
        log_requests: whether each request is logged as a line of `server.log`.
        database: `postgresql+asyncpg://…` instead of a file in the folder.

    Raises:
        InvalidInputError: if the port is taken.
        OrchestratorUnreachableError: if it does not come up.
    """
    folder = folder.absolute()  # noqa: ASYNC240 - two quick calls, before anything runs concurrently
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port(port)
    url = f"http://127.0.0.1:{port}"
    command = _command(port, log_level="info" if log_requests else "warning")
    environ = _environ(folder, os.environ) | {
        "PREFECT_API_DATABASE_CONNECTION_URL": database or f"sqlite+aiosqlite:///{folder / 'prefect.db'}",
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_UI_API_URL": "/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": FILE_LEASES,
        "PREFECT_SERVER_LOGGING_LEVEL": "INFO" if log_requests else "WARNING",
        "PREFECT__SERVER_FINAL": "1",
    }
    if not keep_leases:
        # Whatever held leases of an earlier server in this folder has ended with it.
        await asyncio.to_thread(shutil.rmtree, folder / _LEASES, ignore_errors=True)
    log = folder / "server.log"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=_SERVER_GRACE_S) as process:
        if problem := await start_problem(f"{url}{_HEALTH}", lambda: process.has_ended):
            raise _not_up(problem, log)
        yield PrivateServer(url, folder, process)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """The user's own Prefect server on this machine.

    Attributes:
        url: its address, where the UI is.
        was_running: whether it was running already.
    """

    url: str
    log: Path
    was_running: bool = False


def run_server(port: int) -> NoReturn:
    """Become a Prefect server on loopback, with the user's own database and settings, until a signal ends it.

    Raises:
        InvalidInputError: if the port is taken.
    """
    command = _command(free_port(port), log_level="warning")
    os.execve(command[0], command, _local_environ())  # noqa: S606 - no shell is needed


async def start_server(port: int) -> LocalServer:
    """Start a server like `run_server`'s in the background, return it once it answers; `prefect server stop` ends it.

    A server started by Prefect's own `prefect server start --background` writes into a pipe that nothing reads: its
    first warning, about a missing internet connection or a busy database, ends it.

    Raises:
        InvalidInputError: if something else listens on the port, or a server runs on another port.
        OrchestratorUnreachableError: if it does not come up; its process is ended then.
    """
    home = Path(prefect_settings.PREFECT_HOME.value())
    home.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - quick calls, before anything runs concurrently
    url, log, pid_file = f"http://127.0.0.1:{port}", home / "server.log", home / _PID_FILE
    if (pid := _running(pid_file)) is not None:
        if await _answers(f"{url}{_HEALTH}"):
            return LocalServer(url, log, was_running=True)
        raise errors.InvalidInputError(
            f"a Prefect server already runs in the background (process {pid}), but not at {url}",
            next_step="`prefect server stop` ends it.",
        )
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - it outlives this process
            _command(free_port(port), log_level="warning"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_local_environ(),
            start_new_session=True,
        )
    pid_file.write_text(str(process.pid))
    problem: str | None = None
    try:
        problem = await start_problem(f"{url}{_HEALTH}", lambda: process.poll() is not None)
    finally:
        if problem != "":  # also if the wait was cancelled
            process.terminate()
            pid_file.unlink(missing_ok=True)
    if problem:
        raise _not_up(problem, log)
    return LocalServer(url, log)


def _command(port: int, *, log_level: str) -> list[str]:
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(headgate.__file__).parents[1]), "--factory"]
    command += ["headgate.orchestration.server_app:create_app", "--host", "127.0.0.1", "--port", str(port)]
    return [*command, "--timeout-keep-alive", "5", "--timeout-graceful-shutdown", "2", "--log-level", log_level]


def _local_environ() -> dict[str, str]:
    """Return the user's environment, with defaults for a server on one machine where it sets none."""
    ours = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": FILE_LEASES}
    return ours | dict(os.environ) | {"PREFECT__SERVER_FINAL": "1"}


def _running(pid_file: Path) -> int | None:
    """Return the process in a PID file; None if it is gone, or the number now belongs to another program."""
    try:
        pid = int(pid_file.read_text())
        os.kill(pid, 0)
        if (command := Path(f"/proc/{pid}/cmdline")).exists() and b"create_app" not in command.read_bytes():
            return None
    except (OSError, ValueError):
        return None
    return pid


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


async def start_problem(url: str, has_ended: Callable[[], bool], within_s: float = _START_TIMEOUT_S) -> str:
    """Return "" once a server answers at `url`, else why it does not; polled, since a server announces nothing."""
    deadline = time.monotonic() + within_s
    pause_s = _FIRST_LOOK_S
    while time.monotonic() < deadline:
        if has_ended():
            return "ended"
        if await _answers(url):
            return ""
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_LOOK_S)
    return f"did not answer within {within_s:g} s"


async def _answers(url: str) -> bool:
    try:
        # TLS off: loading the certificate authorities takes longer than the request.
        async with httpx.AsyncClient(timeout=5, trust_env=False, verify=False) as client:  # noqa: S501 - loopback
            return (await client.get(url)).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _not_up(what: str, log: Path) -> errors.OrchestratorUnreachableError:
    said = last_lines(log)
    return errors.OrchestratorUnreachableError(f"the Prefect server {what}", next_step=f"It wrote to {log}:\n{said}")
