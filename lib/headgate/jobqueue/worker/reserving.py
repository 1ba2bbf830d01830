"""Asking the worker, from within a job's command, for the policy server that the job needs.

The command loads its simulator first and asks then: until it does, another job uses the server. The talk goes over a
Unix socket: one line of JSON each way, and whoever closes the connection while waiting waits no more.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from headgate.jobqueue.errors import JobQueueError
from headgate.jobqueue.worker.environment import WORKER_SOCKET, server_in
from headgate.jobqueue.worker.errors import NoServerError, NotInAJobError
from headgate.jobqueue.worker.reserved import ReservedServer

_ANSWER_BYTES: Final = 1 << 20
_SPARE_S: Final = 30.0
"""The worker ends a wait at its timeout; an answer this much later is none."""


def reserve_from_environment(
    timeout_s: float | None = None, environ: Mapping[str, str] | None = None
) -> ReservedServer:
    """Return the job's policy server, after waiting for it; the same one when asked again.

    Args:
        timeout_s: seconds to wait at most; None waits for as long as it takes.
        environ: in place of the process environment.

    Raises:
        NotInAJobError: no worker has started this process for a job that needs a server.
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
    """Give the policy server back before the command ends; its end does so, too.

    Raises:
        NotInAJobError: no worker has started this process for a job that needs a server.
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


def answer_of(server: ReservedServer) -> dict[str, Any]:
    """Return what the worker answers for a server."""
    return {"server": asdict(server)}
