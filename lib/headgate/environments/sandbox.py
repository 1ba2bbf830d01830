"""A sandbox for untrusted Python programs between stdin and stdout: no network, files or processes, bounded cost."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import sysconfig
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from headgate.core import errors
from headgate.environments.uninterrupted import uninterrupted

_LAUNCHER: Final = Path(__file__).with_name("sandbox_launcher.py")
_CHUNK_BYTES: Final = 65_536
_SYSTEM_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_DEVICES: Final = ("/dev/null", "/dev/urandom", "/dev/zero")


class Outcome(StrEnum):
    """How a program ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUTPUT_LIMIT = "output_limit"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may cost. The defaults are those of the published executor (affinetes).

    Attributes:
        wall_s: from start to end, the start of the interpreter included.
        cpu_s: processor time.
        memory_bytes: address space.
        output_bytes: of stdout, and of stderr.
    """

    wall_s: float = 30.0
    cpu_s: int = 10
    memory_bytes: int = 512 * 1024 * 1024
    output_bytes: int = 1_000_000


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What a program did.

    Attributes:
        outcome: how it ended.
        exit_status: of the process, negative for the signal that ended it.
        stdout: decoded as UTF-8, invalid bytes replaced; cut at the limit.
        stderr: likewise.
        wall_s: how long it took.
    """

    outcome: Outcome
    exit_status: int
    stdout: str
    stderr: str
    wall_s: float

    @property
    def is_clean(self) -> bool:
        """True when it ended with status 0 and wrote nothing to stderr."""
        return self.outcome is Outcome.OK and not self.stderr

    @property
    def problem(self) -> str:
        """The reason why it is not clean in one line; empty when it is."""
        if self.is_clean:
            return ""
        last = self.stderr.rstrip().rpartition("\n")[2][:200]
        return f"{self.outcome.value} (exit status {self.exit_status}){': ' if last else ''}{last}"


class Sandbox:
    """Runs programs, at most `concurrency` at a time per event loop; later ones wait.

    Lives as long as the process; holds nothing between runs.
    """

    def __init__(self, concurrency: int | None = None, hash_seed: int = 0) -> None:
        # Hashes of strings are seeded, so that a program that walks a set prints the same on every machine.
        self._environment = {"PYTHONHASHSEED": str(hash_seed), "TZ": "UTC", "LANG": "C.UTF-8"}
        self._concurrency = concurrency or os.cpu_count() or 1
        self._slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        self._locks: tuple[str, ...] | None = None

    async def run(self, program: str, stdin: str = "", limits: Limits | None = None) -> ProgramRun:
        """Return what `program` did with `stdin`. When the caller is cancelled, the program is killed first.

        Raises:
            SandboxUnavailableError: if this machine cannot lock the program in.
        """
        await self.locks()
        async with self._slot():
            return (await _run(program, stdin, limits or Limits(), self._environment)).run

    async def locks(self) -> tuple[str, ...]:
        """Return the locks that hold on this machine, of `calls`, `namespaces` and `files`; `calls` always does.

        They are tried once per process: a program attempts what they forbid.

        Raises:
            SandboxUnavailableError: if programs cannot be locked in here.
        """
        if self._locks is None:
            async with self._slot():
                self._locks = await _tried_locks(self._environment)
        return self._locks

    def _slot(self) -> asyncio.Semaphore:
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._concurrency))


@dataclass(frozen=True, slots=True)
class _LockedRun:
    locks: tuple[str, ...]
    run: ProgramRun


async def _tried_locks(environment: Mapping[str, str]) -> tuple[str, ...]:
    if sys.platform != "linux":
        raise errors.SandboxUnavailableError(f"programs cannot be locked in on {sys.platform!r}")
    tried = await _run(_BURGLAR, "", Limits(), environment)
    if tried.run.stdout != _REFUSED or not tried.run.is_clean:
        raise errors.SandboxUnavailableError(
            f"the locks of the sandbox do not hold: {tried.run.problem or tried.run.stdout!r}"
        )
    return tried.locks


async def _run(program: str, stdin: str, limits: Limits, environment: Mapping[str, str]) -> _LockedRun:
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="headgate-sandbox-") as folder,
        _memory_file(program) as program_fd,
        _memory_file(stdin) as stdin_fd,
    ):
        process = await asyncio.create_subprocess_exec(
            *_command(program_fd, limits),
            stdin=stdin_fd,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=environment,
            pass_fds=(program_fd,),
            start_new_session=True,
        )
        watched = _Watched(process, limits.output_bytes)
        try:
            await watched.until_end(limits.wall_s)
        finally:
            await uninterrupted(watched.kill_and_reap())
    return watched.judged(time.monotonic() - started)


class _Watched:
    """A running program and what it has written. Owned by one `_run`; `kill_and_reap` ends it in every case."""

    def __init__(self, process: asyncio.subprocess.Process, output_bytes: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._streams = ((process.stdout, bytearray()), (process.stderr, bytearray()))
        self._limit = output_bytes + len(_LOCKED) + 32  # the launcher's line comes before the program's output
        self._outcome: Outcome | None = None  # set when this side ended the program

    async def until_end(self, wall_s: float) -> None:
        """Return when the program has ended by itself, written too much, or run for `wall_s`."""
        try:
            async with asyncio.timeout(wall_s):
                async with asyncio.TaskGroup() as readers:
                    for stream, written in self._streams:
                        readers.create_task(self._read(stream, written))
                if self._outcome is None:  # a program may close its streams and go on
                    await self._process.wait()
        except TimeoutError:
            self._outcome = Outcome.TIMEOUT

    async def kill_and_reap(self) -> None:
        """End the whole process group, empty the pipes (the transport waits for that) and wait for the process."""
        self._kill()
        for stream, _ in self._streams:
            while await stream.read(_CHUNK_BYTES):
                pass
        await self._process.wait()

    def judged(self, wall_s: float) -> _LockedRun:
        """Return the run; without the launcher's first line there was none."""
        stdout, stderr = (bytes(written) for _, written in self._streams)
        first_line, _, stdout = stdout.partition(b"\n")
        status = self._process.returncode
        assert status is not None
        if not first_line.startswith(_LOCKED):
            reason = stderr.decode("utf-8", "replace").rstrip().rpartition("\n")[2] or f"exit status {status}"
            raise errors.SandboxUnavailableError(f"a program cannot be locked in: {reason}")
        run = ProgramRun(
            outcome=self._outcome or _outcome_of(status, stderr),
            exit_status=status,
            stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace"),
            wall_s=wall_s,
        )
        return _LockedRun(tuple(first_line[len(_LOCKED) :].decode().split()), run)

    async def _read(self, stream: asyncio.StreamReader, written: bytearray) -> None:
        while chunk := await stream.read(_CHUNK_BYTES):
            written += chunk[: self._limit - len(written)]
            if len(written) >= self._limit:
                self._outcome = Outcome.OUTPUT_LIMIT
                self._kill()
                return

    def _kill(self) -> None:
        # The group has one member, since the locks refuse to start others; once that has ended, its number may be
        # given to a stranger, so a process that is known to have ended is never signalled.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _outcome_of(status: int, stderr: bytes) -> Outcome:
    if status == 0:
        return Outcome.OK
    if status in (-signal.SIGXCPU, -signal.SIGKILL):  # the kernel sends the second where the first is ignored
        return Outcome.TIMEOUT
    if stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
        return Outcome.MEMORY
    return Outcome.FAILED


def _command(program_fd: int, limits: Limits) -> tuple[str, ...]:
    interpreter = getattr(sys, "_base_executable", "") or sys.executable
    # No site (-S, which also halves the start), no user site (-s), no folder of the script on the path (-P). Not -I:
    # it would ignore PYTHONHASHSEED, and the environment is ours anyway.
    flags = ("-s", "-S", "-P", "-B", "-X", "utf8")
    settings = (str(program_fd), str(limits.cpu_s), str(limits.memory_bytes))
    return (interpreter, *flags, str(_LAUNCHER), *settings, *_readable_paths())


@functools.cache
def _readable_paths() -> tuple[str, ...]:
    """Return what programs may read, folders with a slash: the standard library and what it loads, no packages.

    Installed packages stay closed because some hold the reference solutions of tasks.
    """
    paths = sysconfig.get_paths()
    roots = {
        Path(paths["stdlib"]),
        Path(paths["platstdlib"]),
        Path(sys.base_prefix, "lib"),
        *map(Path, _SYSTEM_LIBRARIES),
    }
    granted = {path for root in roots if root.exists() for path in _without_packages(root)}
    granted |= {path for path in map(Path, _DEVICES) if path.exists()}
    return tuple(f"{path}/" if path.is_dir() else str(path) for path in sorted(granted))


def _without_packages(root: Path) -> Iterator[Path]:
    closed = {*root.glob("*-packages"), *root.glob("python*/*-packages")}
    if not closed:
        yield root
        return
    for child in root.iterdir():
        if child not in closed:
            yield from _without_packages(child) if child.is_dir() else (child,)


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[int]:
    """Yield the descriptor of a file in memory that holds `text`, positioned at its start."""
    descriptor = os.memfd_create("headgate-sandbox")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(text.encode("utf-8", "replace"))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


_LOCKED: Final = b"locked: "
_REFUSED: Final = "refused refused refused\n"
_BURGLAR: Final = """
import _socket, os
def attempt(forbidden):
    try:
        forbidden()
    except OSError:
        return "refused"
    return "allowed"
def start():
    if os.fork() == 0:
        os._exit(0)
print(attempt(_socket.socket), attempt(start), attempt(lambda: open("file", "w")))
"""

SHARED: Final = Sandbox()
"""The sandbox of this process: one bound on how many programs run at once."""
