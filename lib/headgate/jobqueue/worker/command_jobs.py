"""Works on jobs by running a command for each, in its own process group, which ends when the worker does."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

from headgate.core import SystemClock, redacted
from headgate.core.errors import InvalidInputError
from headgate.durable.locks import temporary_folder
from headgate.jobqueue.errors import MachineUnfitError, ResultRefusedError, StaleLeaseError
from headgate.jobqueue.worker.held_job import HeldJob
from headgate.jobqueue.worker.reservation import command_environment, reservation_socket
from headgate.jobqueue.worker.results import check_folder, check_place, file_name, place_of, publish, retract_result
from headgate.processes import KEEPER

_log = logging.getLogger("headgate.jobqueue.worker")

COMMAND_TASK: Final = "command"
"""Task of jobs that carry their own command: a list of strings, `command` in their payload."""

TAIL_CHARS: Final = 4_000
"""Error of a failed attempt: what happened, and the end of the command's output. The server keeps no more."""

_READ_BYTES: Final = 64 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SOCKET_CHARS: Final = 100
_RESULT_BYTES: Final = 64 * 1024 * 1024
_OF_THE_JOB: Final = (errno.E2BIG, errno.ENAMETOOLONG)
"""Errors that a command causes on every machine: it is longer than the system allows."""

_TELL_SHARE: Final = 0.1
"""The keeper is told the remaining lease again after this fraction of it."""


class ReserveMode(StrEnum):
    """When a job's command gets its policy server."""

    BEFORE = "before"
    ASK = "ask"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class CommandRules:
    """How a job's command is run.

    Attributes:
        command: the program and its arguments, run without a shell. None: the command that each job carries, so
            anyone who may submit jobs can run programs here.
        reserve: `ask`: the command asks once it has loaded its slow parts; `before`: it starts with a server.
        timeout_s: seconds after which an attempt is stopped; None for no limit.
        grace_s: seconds between SIGTERM and SIGKILL.
        results_dir: folder to which results are also written, as files; None: only the queue has them.
        log_dir: folder for the commands' output, one file per claim; None: only the end of a failed one's is kept.
    """

    command: Sequence[str] | None
    reserve: ReserveMode = ReserveMode.ASK
    timeout_s: float | None = None
    grace_s: float = 10.0
    results_dir: Path | None = None
    log_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.command is not None and not self.command:
            raise InvalidInputError("the command must have at least one word (got none)")
        if self.command is not None and shutil.which(self.command[0]) is None:
            # If a job found it out, one job after another would be charged until all of them are dead.
            raise InvalidInputError(
                f"the command's program must be there and executable (got {self.command[0][:200]!r})",
                next_step="Write its path, or put its folder on PATH; for a line of shell: sh -c '…'.",
            )
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InvalidInputError(f"the timeout must be > 0 s (got {self.timeout_s:g})")
        self.check_folders()

    def check_folders(self) -> None:
        """Check that results and logs can be written (`check_folder`), before work whose result would be lost."""
        for folder in filter(None, (self.results_dir, self.log_dir)):
            check_folder(folder)


class CommandJobs:
    """The work of `Worker.run`: runs the command for each job and submits its result.

    A command gets the job as a file and writes its result, a JSON object, to another file; exit status 0 and a result
    complete the job, anything else fails the attempt. Variables (`environment`) name the files. A command that a job
    carries need not write a result: its exit status and the end of its output then are the result.
    """

    def __init__(self, rules: CommandRules) -> None:
        self._rules = rules
        self._clock = SystemClock()

    async def __call__(self, job: HeldJob) -> None:
        """Run the command for a job, and report the outcome to the server."""
        command = self._rules.command or _carried(job)
        if command is None:
            await job.fail("the job carries no command: its payload's `command` must be a list of strings", retry=False)
            return
        try:
            await asyncio.to_thread(self._check_place, job)
            with _folder() as folder:
                log = self._log_file(job, folder)
                status = await self._run(command, job, folder, log)
                await self._settle(job, status, folder / "result.json", log)
        except ResultRefusedError as error:
            await job.fail(error, retry=False)
        except (InvalidInputError, MachineUnfitError) as error:
            # If no folder can be written any more, the machine is at fault; if only the job's files cannot, the job is.
            await asyncio.to_thread(self._check_folders)
            await job.fail(error)
        except OSError as error:  # of the files and processes that every job needs; a command's own are in its output
            if error.errno in _OF_THE_JOB:
                raise
            raise MachineUnfitError(f"no command can be run here: {error.strerror or error}") from None

    def _check_place(self, job: HeldJob) -> None:
        """Check that the job's result may be written, which would otherwise be refused after hours of work."""
        self._check_folders()
        if self._rules.results_dir is not None:
            check_place(place_of(job, self._rules.results_dir), _claim(job))

    def _check_folders(self) -> None:
        try:
            self._rules.check_folders()
        except InvalidInputError as error:  # they were writable when the worker started
            raise MachineUnfitError(error.message) from None

    async def _run(self, command: Sequence[str], job: HeldJob, folder: Path, log: Path) -> int | None:
        """Return the command's exit status, negative for the signal that ended it; None when it took too long."""
        (folder / "job.json").write_text(job.spec.model_dump_json(indent=2) + "\n")
        async with AsyncExitStack() as line:
            socket: Path | None = None
            if job.spec.pool and self._rules.reserve is ReserveMode.ASK:
                socket = await line.enter_async_context(reservation_socket(job, folder / "worker"))
            elif job.spec.pool and self._rules.reserve is ReserveMode.BEFORE:
                # Held until the job ends: the server is not free before the result or the failure is reported.
                await job.reserve_server()
            environ = command_environment(job, folder / "job.json", folder / "result.json", socket)
            return await self._execute(command, environ, log, job)

    async def _execute(self, command: Sequence[str], environ: Mapping[str, str], log: Path, job: HeldJob) -> int | None:
        """Run a command to its end; when cancelled, return only once its process group is gone."""
        with log.open("ab") as file:
            keeper = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", KEEPER, "--leased", f"{self._rules.grace_s:g}", *command,
                stdin=asyncio.subprocess.PIPE, stdout=file, stderr=file, env=dict(environ), start_new_session=True,
            )  # fmt: skip
        ended = asyncio.create_task(keeper.wait(), name="end of the command")
        telling = asyncio.create_task(self._tell(keeper, job), name="lease of the command")
        try:
            if self._rules.timeout_s is None:
                return await asyncio.shield(ended)
            limit = asyncio.create_task(self._clock.sleep(self._rules.timeout_s))
            try:
                await asyncio.wait((ended, limit), return_when=asyncio.FIRST_COMPLETED)
            finally:
                limit.cancel()
            return ended.result() if ended.done() else None
        finally:
            telling.cancel()
            await _stopped(keeper, ended)

    async def _tell(self, keeper: asyncio.subprocess.Process, job: HeldJob) -> None:
        """Tell the keeper, again and again, how long the command may run if its worker hangs."""
        assert keeper.stdin is not None
        while True:
            left_s = job.lease_left_s
            with contextlib.suppress(ConnectionError):
                keeper.stdin.write(f"{left_s:.3f}\n".encode())
                await keeper.stdin.drain()
            await self._clock.sleep(max(1.0, left_s * _TELL_SHARE))

    async def _settle(self, job: HeldJob, status: int | None, result_file: Path, log: Path) -> None:
        what = self._sentence(status)
        if status != 0:
            await job.fail(_report(what, log))
            return
        try:
            result = await asyncio.to_thread(self._result, result_file, log)
            job.check_result(result)
        except InvalidInputError as error:
            await job.fail(_report(f"{what}, but {error.message}", log))
            return
        folder = self._rules.results_dir
        artifact = None if folder is None else await publish(job, folder, result, clock=self._clock)
        try:
            await job.complete(result, artifact=artifact)
        except StaleLeaseError:
            if artifact is not None:
                await asyncio.to_thread(retract_result, artifact.path, _claim(job))
            raise

    def _sentence(self, status: int | None) -> str:
        """Return how a command ended, in a sentence."""
        if status is None:
            return f"the command did not end within {self._rules.timeout_s:g} s and was stopped"
        if status >= 0:
            return f"the command ended with exit status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        memory = " (the memory of its machine or its job may have been too small)" if name == "SIGKILL" else ""
        return f"the command was ended by {name}{memory}"

    def _result(self, path: Path, log: Path) -> dict[str, Any]:
        if self._rules.command is None and not path.exists():
            return {"exit_status": 0, "output": tail_of(log, TAIL_CHARS)}
        return _result_in(path)

    def _log_file(self, job: HeldJob, folder: Path) -> Path:
        kept = self._rules.log_dir
        return folder / "output.log" if kept is None else kept / f"{file_name(job.id)}.{job.epoch}.log"


def _carried(job: HeldJob) -> Sequence[str] | None:
    command = job.payload.get("command")
    is_one = isinstance(command, list) and bool(command) and all(isinstance(word, str) for word in command)
    return command if is_one else None


def _claim(job: HeldJob) -> dict[str, Any]:
    return {"job_id": job.id, "epoch": job.epoch}


def _folder() -> contextlib.AbstractContextManager[Path]:
    """Return a folder for one attempt, on this machine, whose path is short enough for a Unix socket."""
    place = tempfile.gettempdir()
    return temporary_folder("headgate-job-", place if len(place.encode()) < _SOCKET_CHARS - 40 else "/tmp")  # noqa: S108


def _result_in(path: Path) -> dict[str, Any]:
    try:
        with _regular(path) as file:
            data = file.read(_RESULT_BYTES + 1)
    except FileNotFoundError:
        raise InvalidInputError("it wrote no result (HEADGATE_RESULT_FILE)") from None
    except OSError as error:
        raise InvalidInputError(f"its result cannot be read: {error.strerror}") from None
    if len(data) > _RESULT_BYTES:
        raise InvalidInputError(f"its result is larger than {_RESULT_BYTES} bytes")
    try:
        result = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"its result is not JSON: {error}"[:300]) from None
    if not isinstance(result, dict):
        raise InvalidInputError(f"its result must be a JSON object (got {type(result).__name__})")
    return result


def _regular(path: Path) -> BinaryIO:
    """Open a file that a command has left, for reading; a pipe in its place must not block the worker forever.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115 - returned
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is not a regular file")


def _report(what: str, log: Path) -> str:
    """Return what happened and the end of the output, within the server's limit."""
    head = f"{what}; the end of its output:\n"
    tail = tail_of(log, TAIL_CHARS - len(head))
    return head + tail if tail else f"{what}; it printed nothing"


def tail_of(path: Path, chars: int) -> str:
    """Return the last characters of the output, without secrets, colours and control characters.

    Bytes that are not UTF-8 become U+FFFD; a progress bar is reduced to its last state. Empty when there was no output,
    or the file is gone.
    """
    try:
        with _regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _READ_BYTES))
            data = file.read(_READ_BYTES)
    except OSError:
        return ""
    text = _COLOURS.sub("", data.decode(errors="replace"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    clean = _CONTROL.sub("", "\n".join(lines)).strip()
    return redacted(clean, limit_chars=2 * _READ_BYTES)[-chars:] if chars > 0 else ""


async def _stopped(keeper: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
    """Return once the keeper has ended the command, which it does by itself when its stdin is closed."""
    assert keeper.stdin is not None
    keeper.stdin.close()
    is_cancelled = False
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            is_cancelled = True  # wait for the command's process group first: nothing else would end it
    if is_cancelled:
        raise asyncio.CancelledError
