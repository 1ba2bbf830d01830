"""The audit trail: who changed what, from what to what, and when; one append-only file for all parts of Headgate.

Every part records the changes that a person or program asked of it, on the machine that makes the change.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pwd
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from headgate.core.secrets import redacted

FILE_VARIABLE: Final = "HEADGATE_AUDIT_FILE"
DEFAULT_FILE: Final = Path(".headgate/audit.jsonl")
MOST_BYTES: Final = 8 * 1024**2
OLDER_FILES: Final = 5
"""A full file becomes `audit.jsonl.1`, the one before `.2`; this many are kept, 48 MiB in all."""

ANYBODY: Final = "anybody on this machine"
"""The caller of a server that requires no token."""

_CHARS: Final = 500
_log: Final = logging.getLogger("headgate.audit")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change.

    Attributes:
        at: ISO 8601 time in UTC.
        who: `token NAME (ID)`, `user NAME@HOST`, or a flow run.
        what: which part did what, such as `jobqueue drain`.
        thing: name or id of what was changed.
        before: the former value, or empty.
        after: the new value, or empty.
    """

    at: str
    who: str
    what: str
    thing: str
    before: str = ""
    after: str = ""


def audit_file() -> Path:
    """Return the trail's file: the one in `HEADGATE_AUDIT_FILE`, or the default in the working directory."""
    return Path(os.environ.get(FILE_VARIABLE) or DEFAULT_FILE)


def process_user() -> str:
    """Return the operating system's user of this process, with the flow run that it works for."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    run = os.environ.get("PREFECT__FLOW_RUN_ID")
    return f"{f'flow run {run}, ' if run else ''}user {name}@{socket.gethostname()}"


def record_change(what: str, thing: str, *, before: object = "", after: object = "", who: str = "") -> None:
    """Append an entry durably; if that fails, it goes to the log, and the change itself stands.

    The texts are those of an `AuditEntry`; an empty `who` means `process_user`, and dataclasses are written as JSON.
    Long texts are truncated, and what looks like a key is masked.
    """
    said = who or process_user(), what, thing, _text(before), _text(after)
    texts = [redacted(text, limit_chars=_CHARS) for text in said]
    entry = AuditEntry(datetime.now(UTC).isoformat(timespec="milliseconds"), *texts)
    try:
        _append(audit_file(), json.dumps(asdict(entry)).encode() + b"\n")
    except OSError as error:
        _log.error("The audit trail %s cannot be written (%s): %s", audit_file(), error.strerror, entry)


def _text(value: object) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        return json.dumps(asdict(value), default=str, ensure_ascii=False)
    return str(value)


def audit_entries() -> Iterator[AuditEntry]:
    """Yield the entries that are kept, oldest first; lines that are not entries are skipped."""
    file = audit_file()
    for path in (*(_older(file, number) for number in range(OLDER_FILES, 0, -1)), file):
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            try:
                yield AuditEntry(**json.loads(line))
            except (ValueError, TypeError):
                continue


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            if not _is_at(path, file.fileno()):
                continue  # another process has started a new file while this one waited
            if size and size + len(line) > MOST_BYTES:
                for number in range(OLDER_FILES, 0, -1):
                    if (newer := _older(path, number - 1)).exists():
                        newer.replace(_older(path, number))
                continue
            is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"  # the machine crashed while writing
            file.write(b"\n" + line if is_torn else line)
            os.fsync(file.fileno())
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _older(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path
