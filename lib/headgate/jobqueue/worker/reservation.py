"""How a job's command gets the job's reserved policy server from its worker.

The variables that the worker passes to the command name the server, or a Unix socket on which the command asks for it
once it has loaded its simulator: until it asks, other jobs can use the server. Question and answer are one line of
JSON each; a client that closes the connection while waiting withdraws its request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from headgate.core.errors import HeadgateError
from headgate.core.tasks import cancelled, first_ended
from headgate.jobqueue.errors import JobQueueError, NoServerError, NotInAJobError
from headgate.jobqueue.reserved_server import RESOURCE_VARIABLES, ReservedServer, server_in
from headgate.jobqueue.worker.held_job import HeldJob, Stopped
from headgate.jobqueue.worker.requests import TOKEN_VARIABLE, URL_VARIABLES

JOB_FILE: Final = "HEADGATE_JOB_FILE"
JOB_ID: Final = "HEADGATE_JOB_ID"
JOB_EPOCH: Final = "HEADGATE_JOB_EPOCH"
JOB_ATTEMPT: Final = "HEADGATE_JOB_ATTEMPT"
RESULT_FILE: Final = "HEADGATE_RESULT_FILE"
WORKER_SOCKET: Final = "HEADGATE_WORKER_SOCKET"

_KEPT_BACK: Final = frozenset(
    {JOB_FILE, JOB_ID, JOB_EPOCH, JOB_ATTEMPT, RESULT_FILE, WORKER_SOCKET, *RESOURCE_VARIABLES}
    | {TOKEN_VARIABLE, *URL_VARIABLES}
)
"""Variables of the worker that the command does not inherit: another job's, and the queue's address and token."""


def command_environment(job: HeldJob, job_file: Path, result_file: Path, socket: Path | None) -> dict[str, str]:
    """Return the environment of a job's command: the worker's, plus the variables that describe the job."""
    inner = {name: value for name, value in os.environ.items() if name not in _KEPT_BACK}
    inner |= {
        JOB_FILE: str(job_file),
        JOB_ID: job.id,
        JOB_EPOCH: str(job.epoch),
        JOB_ATTEMPT: str(job.attempt),
        RESULT_FILE: str(result_file),
    }
    if socket is not None:
        inner[WORKER_SOCKET] = str(socket)
    return inner | (job.server.variables if job.server is not None else {})


_ANSWER_BYTES: Final = 1 << 20
_SPARE_S: Final = 30.0
"""The worker ends a wait at its timeout; this much later, no answer will come."""


def reserve_from_environment(
    timeout_s: float | None = None, environ: Mapping[str, str] | None = None
) -> ReservedServer:
    """Return the job's policy server, waiting for it if necessary; the same one when called again.

    Args:
        timeout_s: maximum wait in seconds; None waits for as long as it takes.
        environ: used in place of the process environment.

    Raises:
        NotInAJobError: no worker started this process for a job that needs a server.
        NoServerError: none became free in time.
        JobQueueError: the worker could not reserve one, or is gone.
    """
    environ = os.environ if environ is None else environ
    server = server_in(environ)
    if server is not None:
        return server
    answer = _asked({"do": "reserve", "timeout_s": timeout_s}, timeout_s, environ)
    return ReservedServer(**answer["server"])


def release_from_environment(environ: Mapping[str, str] | None = None) -> None:
    """Give the policy server back before the command ends; the command's end also does so.

    Raises:
        NotInAJobError: no worker started this process for a job that needs a server.
        JobQueueError: the worker is gone.
    """
    _asked({"do": "release"}, _SPARE_S, os.environ if environ is None else environ)


def _asked(question: Mapping[str, Any], timeout_s: float | None, environ: Mapping[str, str]) -> dict[str, Any]:
    path = environ.get(WORKER_SOCKET)
    if not path:
        raise NotInAJobError(f"no worker has started this process for a job with a policy server ({WORKER_SOCKET})")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(None if timeout_s is None else timeout_s + _SPARE_S)
            line.connect(path)
            line.sendall(json.dumps(question).encode() + b"\n")
            with line.makefile("rb") as answers:
                said = answers.readline(_ANSWER_BYTES)
    except OSError as error:
        raise _gone(str(error)) from None
    if not said.endswith(b"\n"):
        raise _gone("it closed the connection")
    answer: dict[str, Any] = json.loads(said)
    if (trouble := answer.get("error")) is None:
        return answer
    kind = NoServerError if trouble["code"] == NoServerError.code else JobQueueError
    raise kind(trouble["message"], next_step=trouble["next_step"])


def _gone(why: str) -> JobQueueError:
    return JobQueueError(
        f"the worker does not answer ({why})", next_step="The job is over: stop; the worker's log says why."
    )


_log = logging.getLogger("headgate.jobqueue.worker")


@asynccontextmanager
async def reservation_socket(job: HeldJob, path: Path) -> AsyncIterator[Path]:
    """Answer the requests of a job's command for the duration of the context; only this user can connect.

    Raises:
        OSError: if a socket cannot be created there.
    """
    one_at_a_time = asyncio.Lock()  # a job has one reservation
    visits: set[asyncio.Task[None]] = set()

    def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.create_task(_talk(job, one_at_a_time, reader, writer), name=f"command of job {job.id}")
        visits.add(visit)
        visit.add_done_callback(visits.discard)

    server = await asyncio.start_unix_server(visited, path)
    os.chmod(path, 0o600)  # noqa: PTH101 - no other program waits for this process
    try:
        yield path
    finally:
        server.close()
        await cancelled(*visits)


async def _talk(
    job: HeldJob, one_at_a_time: asyncio.Lock, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        question = json.loads(await reader.readline() or b"null")
        if not isinstance(question, dict):
            return
        async with first_ended(_answer(job, one_at_a_time, question), reader.read(1)) as (answering, _):
            if answering.done():
                writer.write(json.dumps(answering.result()).encode() + b"\n")
                await writer.drain()
    except (OSError, ValueError) as error:
        _log.info("Job %s: what its command asked cannot be answered: %s", job.id, error)
    finally:
        writer.close()


async def _answer(job: HeldJob, one_at_a_time: asyncio.Lock, question: dict[str, Any]) -> dict[str, Any]:
    try:
        async with one_at_a_time:
            if question.get("do") == "release":
                await job.release_server()
                return {}
            if job.server is None:
                timeout_s = question.get("timeout_s")
                await job.reserve_server(None if timeout_s is None else float(timeout_s))
            assert job.server is not None
            return {"server": asdict(job.server)}
    except HeadgateError as error:
        if isinstance(error, NoServerError) and question.get("timeout_s") is None:
            # The command was ready to wait forever: it is not at fault.
            job.stop(error.message, Stopped(error.message), renew_on=True)
        return {"error": {"code": error.code, "message": error.message, "next_step": error.next_step}}
