"""The variables by which a worker and the command that it runs for a job know each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.jobqueue.worker.address import TOKEN_VARIABLE, URL_VARIABLES
from headgate.jobqueue.worker.held_job import HeldJob
from headgate.jobqueue.worker.reserved import ReservedServer

JOB_FILE: Final = "HEADGATE_JOB_FILE"
JOB_ID: Final = "HEADGATE_JOB_ID"
JOB_EPOCH: Final = "HEADGATE_JOB_EPOCH"
JOB_ATTEMPT: Final = "HEADGATE_JOB_ATTEMPT"
RESULT_FILE: Final = "HEADGATE_RESULT_FILE"
WORKER_SOCKET: Final = "HEADGATE_WORKER_SOCKET"
RESOURCE_HOST: Final = "HEADGATE_RESOURCE_HOST"
RESOURCE_PORT: Final = "HEADGATE_RESOURCE_PORT"
RESOURCE_INDEX: Final = "HEADGATE_RESOURCE_INDEX"
RESOURCE_ID: Final = "HEADGATE_RESOURCE_ID"
RESOURCE_LEASE: Final = "HEADGATE_RESOURCE_LEASE"
RESOURCE_EPOCH: Final = "HEADGATE_RESOURCE_EPOCH"

_OURS: Final = frozenset(
    {
        JOB_FILE, JOB_ID, JOB_EPOCH, JOB_ATTEMPT, RESULT_FILE, WORKER_SOCKET, RESOURCE_HOST, RESOURCE_PORT,
        RESOURCE_INDEX, RESOURCE_ID, RESOURCE_LEASE, RESOURCE_EPOCH,
    }
)  # fmt: skip
_KEPT_BACK: Final = frozenset({TOKEN_VARIABLE, *URL_VARIABLES})
"""What the command does not get: it asks its worker, and needs no token of the queue."""


def command_environment(
    outer: Mapping[str, str],
    job: HeldJob,
    *,
    job_file: Path,
    result_file: Path,
    socket: Path | None = None,
    server: ReservedServer | None = None,
) -> dict[str, str]:
    """Return the environment of a job's command.

    Args:
        outer: the worker's.
        job: the job.
        job_file: the job as JSON.
        result_file: where the command writes its result.
        socket: where it asks for a policy server, or None.
        server: the policy server that it has already, or None.
    """
    inner = {name: value for name, value in outer.items() if name not in _OURS | _KEPT_BACK}
    inner |= {
        JOB_FILE: str(job_file),
        JOB_ID: job.id,
        JOB_EPOCH: str(job.epoch),
        JOB_ATTEMPT: str(job.attempt),
        RESULT_FILE: str(result_file),
    }
    if socket is not None:
        inner[WORKER_SOCKET] = str(socket)
    return inner | (server_variables(server) if server is not None else {})


def server_variables(server: ReservedServer) -> dict[str, str]:
    """Return the variables that name a policy server."""
    return {
        RESOURCE_HOST: server.host,
        RESOURCE_PORT: str(server.port),
        RESOURCE_INDEX: str(server.index),
        RESOURCE_ID: server.resource_id,
        RESOURCE_LEASE: server.lease_id,
        RESOURCE_EPOCH: str(server.epoch),
    }


def server_in(environ: Mapping[str, str]) -> ReservedServer | None:
    """Return the policy server that an environment names, None when it names none."""
    host, port = environ.get(RESOURCE_HOST), environ.get(RESOURCE_PORT, "")
    if not host or not port.isdecimal():
        return None
    return ReservedServer(
        host,
        int(port),
        int(environ.get(RESOURCE_INDEX) or 0),
        environ.get(RESOURCE_ID, ""),
        environ.get(RESOURCE_LEASE, ""),
        int(environ.get(RESOURCE_EPOCH) or 0),
    )
