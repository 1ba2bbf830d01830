"""The name of a worker: says whose process it is and where, and is no other one's."""

from __future__ import annotations

import getpass
import os
import re
import socket
import uuid
from collections.abc import Mapping
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PART_CHARS: Final = 50


def worker_name(environ: Mapping[str, str] | None = None) -> str:
    """Return `user-job-array task-uuid`, the job being that of SLURM, or this host outside of one."""
    environ = os.environ if environ is None else environ
    place = environ.get("SLURM_JOB_ID") or socket.gethostname()
    parts = [environ.get("USER") or _user(), place, environ.get("SLURM_ARRAY_TASK_ID", "")]
    clean = (_CONTROL.sub("", part)[:_PART_CHARS] for part in parts)
    return "-".join([*(part for part in clean if part), uuid.uuid4().hex])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "worker"  # a container whose user id has no name
