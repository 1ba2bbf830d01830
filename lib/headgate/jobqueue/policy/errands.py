"""What one evaluation is about, as the command runner says it: a job in a file, a server in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy.lease import PolicyLease

HOST_VARIABLE: Final = "HEADGATE_RESOURCE_HOST"
PORT_VARIABLE: Final = "HEADGATE_RESOURCE_PORT"
LEASE_VARIABLE: Final = "HEADGATE_RESOURCE_LEASE"
EPOCH_VARIABLE: Final = "HEADGATE_RESOURCE_EPOCH"


@dataclass(frozen=True, slots=True)
class Errand:
    """What is evaluated.

    Attributes:
        task: which task.
        instance: which instance of it; may be empty.
    """

    task: str
    instance: str


@dataclass(frozen=True, slots=True)
class PolicyAt:
    """Where the policy server is, and under which reservation it may be used.

    Attributes:
        host: name or address.
        port: TCP port.
        lease: the reservation, None when it is not known.
    """

    host: str
    port: int
    lease: PolicyLease | None = None

    @classmethod
    def from_environment(cls, host: str, port: int, environ: Mapping[str, str] = os.environ) -> PolicyAt:
        """Return a server, with its reservation when the environment names this server and one.

        Raises:
            InvalidInputError: if the epoch there is no number.
        """
        lease_id, epoch = environ.get(LEASE_VARIABLE, ""), environ.get(EPOCH_VARIABLE, "")
        is_named = (environ.get(HOST_VARIABLE), environ.get(PORT_VARIABLE)) == (host, str(port))
        if not lease_id or not is_named:
            return cls(host, port)
        if not (epoch.isascii() and epoch.isdigit()):
            raise InvalidInputError(f"{EPOCH_VARIABLE} must be a number (got {epoch!r:.80})")
        return cls(host, port, PolicyLease(lease_id, int(epoch)))


def read_errand(task: str | None, instance: str | None, job_file: Path | None) -> Errand:
    """Return what is to be evaluated; what is not given is taken from the job.

    A job has `task` and `instance`, or a `payload` that has `task` and `instance_basename`; it may stand under the key
    `job`, beside its lease.

    Raises:
        InvalidInputError: if the file cannot be read or no task is named anywhere.
    """
    job = _job_in(job_file) if job_file is not None and (task is None or instance is None) else {}
    payload = job.get("payload")
    fields = {**(payload if isinstance(payload, dict) else {}), **{key: value for key, value in job.items() if value}}
    task = task if task is not None else _text(fields.get("task"))
    if instance is None:
        instance = _text(fields.get("instance")) or _text(fields.get("instance_basename"))
    if not task:
        where = f"the job in {job_file} has none" if job_file is not None else "there is no job file either"
        raise InvalidInputError(f"no task is named, and {where}", next_step="Give --task and --instance.")
    return Errand(task, instance)


def _job_in(path: Path) -> dict[str, Any]:
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the job file {path} cannot be read: {error}") from error
    job = document.get("job", document) if isinstance(document, dict) else document
    if not isinstance(job, dict):
        raise InvalidInputError(f"the job file {path} must hold a JSON object (got {type(job).__name__})")
    return job


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
