"""Result files: written atomically, with their provenance; an older claim never overwrites a newer one's file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import headgate
from headgate.core import Clock, SystemClock, iso_text
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.durable.files import flush_folder, linked, written_beside
from headgate.durable.locks import folder_locked
from headgate.jobqueue.errors import MachineUnfitError, ResultRefusedError
from headgate.jobqueue.names import number_in

if TYPE_CHECKING:
    from headgate.jobqueue.worker.held_job import HeldJob

PROVENANCE: Final = "provenance"
"""The key of a result's provenance."""

_NAME_BYTES: Final = 180
_PROBE_BYTES: Final = 4096
"""One block of a file system: on a full one, a name can be created but no block written."""

_PLAIN: Final = " !#$&'()+,-=@[]^_`{}~"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that is submitted as a result."""

    path: Path
    checksum: str


def artifact_of(path: Path) -> Artifact:
    """Return a file with its checksum, computed in chunks.

    Raises:
        InvalidInputError: if it cannot be read or is empty.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
            size = file.tell()
    except OSError as error:
        raise InvalidInputError(f"the result {path} cannot be read: {error.strerror or error}") from None
    if not size:
        raise InvalidInputError(f"the result {path} is empty")
    return Artifact(path.absolute(), f"sha256:{digest.hexdigest()}")


def result_path(folder: Path, team: str, task: str, instance: str) -> Path:
    """Return the path of an instance's result: `<folder>/<team>/metrics/<task>_<number>.json`.

    The number is the one at the end of the instance's name, or the whole name if there is none. Characters that do not
    belong in file names are written as `%2F`.
    """
    return folder / file_name(team) / "metrics" / f"{file_name(f'{task}_{number_in(instance) or instance}')}.json"


def publish_result(path: Path, result: Mapping[str, Any], provenance: Mapping[str, Any]) -> Artifact:
    """Write a result durably under a temporary name, then rename it.

    Args:
        path: its final path; the folder is created.
        result: the JSON object.
        provenance: stored with it as `provenance`; has the `job_id` and `epoch` of the claim.

    Raises:
        ResultRefusedError: another job wrote that file, or a claim of this job with the same or a higher epoch.
        InvalidInputError: if it may not be written there, or is not JSON.
        MachineUnfitError: the disk is full, or the folder is gone.
    """
    text = _text({**result, PROVENANCE: dict(provenance)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = written_beside(path, text)
        try:
            # Where locks are not possible, the lease, confirmed just before, keeps the window for a race short.
            with folder_locked(path.parent, where_possible=True):
                _put(temporary, path, provenance)
        finally:
            temporary.unlink(missing_ok=True)
        flush_folder(path.parent)
    except OSError as error:
        raise _unusable(f"the result {path} cannot be written", error) from None
    return Artifact(path.absolute(), f"sha256:{hashlib.sha256(text).hexdigest()}")


def retract_result(path: Path, provenance: Mapping[str, Any]) -> bool:
    """Remove a result that was not accepted, if it is still this claim's; return whether it was."""
    try:
        with folder_locked(path.parent, where_possible=True):
            there = _provenance_in(path)
            is_ours = there is not None and all(there.get(key) == provenance[key] for key in ("job_id", "epoch"))
            if is_ours:
                path.unlink()
                flush_folder(path.parent)
    except OSError:
        return False
    return is_ours


def check_place(path: Path, provenance: Mapping[str, Any]) -> None:
    """Check that a claim may write its result to a file: it does not exist, or is an earlier claim's of the same job.

    Raises:
        ResultRefusedError: otherwise.
        MachineUnfitError: its folder is gone.
    """
    try:
        there = _provenance_in(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(f"the result {path} cannot be read", error) from None
    if there is None or there.get("job_id") != provenance["job_id"]:
        raise ResultRefusedError(
            f"{path} is another job's result, or was not written by a worker of this queue",
            next_step="Move it away, or let results go to another folder; then requeue the job.",
        )
    if not isinstance(there.get("epoch"), int) or there["epoch"] >= provenance["epoch"]:
        raise ResultRefusedError(
            f"{path} was written by epoch {there.get('epoch')} of the job, this one is {provenance['epoch']}"
        )


def check_folder(folder: Path) -> None:
    """Check that files can be written to a folder, which is created if missing.

    Raises:
        InvalidInputError: it is not a folder, or may not be written.
        MachineUnfitError: its disk is full or gone.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written_beside(folder / "probe", bytes(_PROBE_BYTES)).unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(f"nothing can be written to the folder {folder}", error) from None


def _unusable(what: str, error: OSError) -> HeadgateError:
    """Return the error of a wrong path, or of a machine on which every other path would fail too."""
    said = f"{what}: {error.strerror or error}"
    if isinstance(error, PermissionError | IsADirectoryError | NotADirectoryError | FileExistsError):
        return InvalidInputError(said, next_step="Check the path and its permissions.")
    return MachineUnfitError(said)


def _put(temporary: Path, path: Path, provenance: Mapping[str, Any]) -> None:
    if not linked(temporary, path):
        check_place(path, provenance)
        temporary.replace(path)


def _provenance_in(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        return None
    found = document.get(PROVENANCE) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else None


def _text(document: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the result is not JSON: {error}"[:300]) from None


def file_name(name: str) -> str:
    """Return a name as a path component: an ordinary one is unchanged, other characters are written as `%2F`."""
    safe = quote(name, safe=_PLAIN)
    if safe.strip(".") == "":
        safe = safe.replace(".", "%2E") or "_"
    if len(safe) <= _NAME_BYTES:
        return safe
    return f"{safe[:_NAME_BYTES]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


async def publish(
    job: HeldJob,
    folder: Path,
    result: Mapping[str, Any],
    *,
    versions: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Artifact:
    """Write a job's result to its instance's path (`result_path`); submit it with `job.complete(artifact=…)`.

    The lease is confirmed just before; `versions` of the software that made the result are stored with it.

    Raises:
        StaleLeaseError: the lease is over.
        ResultRefusedError: a later claim's result is already there.
        InvalidInputError: it cannot be written.
    """
    told = provenance(job, versions or {}, clock or SystemClock())
    await job.confirm()
    return await asyncio.to_thread(publish_result, place_of(job, folder), result, told)


def place_of(job: HeldJob, folder: Path) -> Path:
    """Return the path of a job's result (`result_path`); without an instance, the name has the job's id."""
    return result_path(folder, job.spec.team, job.spec.task, job.spec.instance or job.id)


def provenance(job: HeldJob, versions: Mapping[str, str], clock: Clock) -> dict[str, Any]:
    """Return the provenance of a job's result."""
    spec, server = job.spec, job.server or job.last_server
    return {
        "job_id": spec.id,
        "epoch": job.epoch,
        "attempt": job.attempt,
        "team": spec.team,
        "task": spec.task,
        "instance": spec.instance,
        "worker": job.worker,
        "host": socket.gethostname(),
        "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        "server": None
        if server is None
        else {"resource_id": server.resource_id, "host": server.host, "port": server.port, "epoch": server.epoch},
        "claimed_at": None if spec.claimed_at is None else iso_text(spec.claimed_at),
        "written_at": iso_text(clock.wall()),
        "versions": {"headgate": headgate.__version__, "python": platform.python_version(), **versions},
    }
