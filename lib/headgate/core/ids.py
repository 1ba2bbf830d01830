"""Names and ids: which names are valid, and how a task gets the same id on every machine."""

from __future__ import annotations

import hashlib
import random
import re
import secrets
from typing import Final, NewType

from headgate.core.errors import InvalidNameError

TaskId = NewType("TaskId", str)
LeaseId = NewType("LeaseId", str)
HolderId = NewType("HolderId", str)
BatchId = NewType("BatchId", str)

MAX_NAME_CHARS: Final = 200
"""Names become parts of file names and object keys; 200 leaves room below the 255 bytes of common file systems."""

MOST_PRIORITY: Final = 1_000_000
"""Highest priority of a job; the lowest is its negative."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]*\Z")


def checked_name(value: str, what: str) -> str:
    """Return `value` when it can serve as a name of a model, environment or campaign.

    Raises:
        InvalidNameError: if it is empty, longer than `MAX_NAME_CHARS`, holds `..`, or has a character outside
            letters, digits and `. _ : @ / + -`.
    """
    if len(value) > MAX_NAME_CHARS or ".." in value or not _NAME.match(value):
        shown = value if len(value) <= 60 else value[:57] + "..."
        raise InvalidNameError(
            f"{what} {shown!r} is not a usable name",
            rule=f"1 to {MAX_NAME_CHARS} letters, digits or . _ : @ / + - , first a letter or digit, no '..'",
        )
    return value


def checked_text(value: str) -> str:
    """Return a name of a team, task, pool, instance or worker.

    Raises:
        ValueError: for control characters and unpaired surrogates.
    """
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in value):
        raise ValueError(f"must have no control characters (got {value[:60]!r})")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"must be text (got {value[:60]!r})") from None
    return value


def task_id_of(model: str, environment: str, sequence: int, stage: str, campaign: str) -> TaskId:
    """Return the id of a task: equal parts give equal ids on every machine and version.

    The unwrapped `sequence` is hashed rather than the index (sequence modulo the data length), so that the second pass
    over an environment's data is new work, not a duplicate of the first.
    """
    parts = "\0".join((campaign, model, environment, stage, str(sequence)))
    return TaskId("t-" + hashlib.blake2b(parts.encode(), digest_size=12).hexdigest())


def seed_of(environment: str, index: int) -> int:
    """Return the seed of an environment's task at `index`, in [0, 2**32): the same for every model."""
    return int.from_bytes(hashlib.sha256(f"{environment}:{index}".encode()).digest()[:4], "big")


def request_seed_of(environment: str, index: int, repeat: int) -> int:
    """Return the seed that a repeat of a task sends in its requests, in [0, 2**31), which every server accepts."""
    digest = hashlib.sha256(f"{environment}:{index}:{repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def unit_hash(*parts: str) -> float:
    """Return a number in [0, 1) that depends only on `parts`: the seeded spread of due times and jitter."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def new_holder_id() -> HolderId:
    """Return a fresh id for a process that holds leases and open tasks."""
    return HolderId("h-" + secrets.token_hex(8))


def new_run_id() -> str:
    """Return a fresh id for one run of a campaign, shared by all its events."""
    return "r-" + secrets.token_hex(6)


_trace_ids: Final = random.Random(secrets.randbits(256))


def new_trace_id() -> str:
    """Return a fresh 128-bit trace id in hex, as W3C trace context writes it.

    It protects nothing, so it does not need a system call.
    """
    return f"{_trace_ids.getrandbits(128):032x}"
