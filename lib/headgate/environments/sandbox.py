"""A sandbox for untrusted Python programs from stdin to stdout: no network, files or processes, bounded cost."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import ctypes
import functools
import os
import signal
import sys
import sysconfig
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from headgate.core import errors
from headgate.durable.locks import temporary_folder
from headgate.environments.shares import MODEL, FairSlots
from headgate.environments.uninterrupted import uninterrupted

_LAUNCHER: Final = Path(__file__).with_name("sandbox_launcher.py")
COMMAND_LAUNCHER: Final = str(_LAUNCHER.with_name("command_launcher.py"))
"""Runs one command behind its own locks, for environments that need more than a program from stdin to stdout."""

_CHUNK_BYTES: Final = 65_536
_SYSTEM_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_DEVICES: Final = ("/dev/null", "/dev/urandom", "/dev/zero")


LOCKS: Final = ("calls", "namespaces", "files")
"""All locks of the sandbox: system-call filter, separate namespaces, and Landlock. Without the first nothing runs."""

_ERRORS: Final = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
)
_NOT_DUMPABLE: Final = (4, 0, 0, 0, 0)  # prctl(PR_SET_DUMPABLE, 0)

_PATIENCE_S: Final = 0.5
"""A program that has run for less is not preempted, since most programs end sooner."""

_NICE: Final = 5
"""Niceness of programs, added to this process's own, so that everything else on the machine goes first."""

_NICEST: Final = 15
"""Niceness of a heavy model's programs, likewise added."""

_TICK_S: Final = 0.5
"""Interval between checks of a running program."""


class Outcome(StrEnum):
    """How a program ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUTPUT_LIMIT = "output_limit"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one run. The defaults are those of the published executor (affinetes).

    Attributes:
        wall_s: from start to end, including the interpreter's start, excluding time spent waiting for a CPU.
        output_bytes: limit of stdout and of stderr, each.
    """

    wall_s: float = 30.0
    cpu_s: int = 10
    memory_bytes: int = 512 * 1024 * 1024
    output_bytes: int = 1_000_000


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The result of a program.

    Attributes:
        exit_status: exit status of the process, or the negative number of the signal that ended it.
        stdout: output decoded as UTF-8, invalid bytes replaced; cut at the limit.
        stderr: likewise.
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
        """The reason why the run is not clean, in one line; empty if it is clean.

        The line is stored, so of the program's output it contains at most the name of a built-in exception class.
        """
        if self.is_clean:
            return ""
        kind = self.stderr.rstrip().rpartition("\n")[2].partition(":")[0]
        return f"{self.outcome.value} (exit status {self.exit_status}{f', {kind}' if kind in _ERRORS else ''})"


class Sandbox:
    """Runs programs, at most `concurrency` at a time in this process, shared among the models that have some to run.

    There are more slots than CPUs, since most long programs only wait; the kernel schedules the rest by priority. If a
    model lacks a slot, a program of a model with more than its share is killed and run again later, which is safe since
    its only effect is its output, which nobody has read. Lives as long as the process; keeps nothing between runs.
    """

    def __init__(self, concurrency: int | None = None, hash_seed: int = 0) -> None:
        # A fixed hash seed makes a program that iterates over a set print the same on every machine.
        self._environment = {"PYTHONHASHSEED": str(hash_seed), "TZ": "UTC", "LANG": "C.UTF-8"}
        self._concurrency = concurrency or _room()
        self._required: tuple[str, ...] = LOCKS
        self._locks: tuple[str, ...] | None = None
        self._free_slots()
        os.register_at_fork(after_in_child=self._free_slots)

    def require(self, locks: Collection[str]) -> None:
        """Require these locks, and always `calls`, before running programs; by default all of `LOCKS` are required."""
        self._required = tuple(lock for lock in LOCKS if lock in locks or lock == "calls")

    @property
    def not_held(self) -> tuple[str, ...]:
        """The locks that do not hold here, and were not required; empty before the first check."""
        return tuple(lock for lock in LOCKS if self._locks is not None and lock not in self._locks)

    async def run(self, program: str, stdin: str = "", limits: Limits | None = None) -> ProgramRun:
        """Run `program` with `stdin` and return the result. If the caller is cancelled, the program is killed first.

        Raises:
            SandboxUnavailableError: if this machine cannot confine the program, or lacks a required lock.
        """
        await self.check()
        return (await self._run(program, stdin, limits or Limits())).run

    async def check(self) -> None:
        """Return if programs can run here.

        Raises:
            SandboxUnavailableError: if this machine cannot confine programs, or lacks a required lock.
        """
        held = await self.locks()
        missing = [lock for lock in self._required if lock not in held]
        if missing:
            raise errors.SandboxUnavailableError(
                f"untrusted programs are not run here without the lock {' and '.join(map(repr, missing))}",
                next_step="Run where `headgate doctor` finds all locks, or leave out environments that run programs. "
                f"HEADGATE_SANDBOX_LOCKS={','.join(held)} is for machines where nothing that this user can read is "
                "secret.",
            )

    async def locks(self) -> tuple[str, ...]:
        """Return the locks that hold on this machine, of `calls`, `namespaces` and `files`; `calls` always does.

        Tested once per process, with a program that attempts what they forbid.

        Raises:
            SandboxUnavailableError: if programs cannot be confined here.
        """
        if self._locks is None:
            tried = await self._run(_BURGLAR, "", Limits())
            if tried.run.stdout != _REFUSED or not tried.run.is_clean:
                raise errors.SandboxUnavailableError(
                    f"the locks of the sandbox do not hold: {tried.run.problem or tried.run.stdout!r}"
                )
            self._locks = tried.locks
            # From now on only root can read this process's memory and environment, which hold keys.
            ctypes.CDLL(None).prctl(*_NOT_DUMPABLE)
        return self._locks

    async def _run(self, program: str, stdin: str, limits: Limits) -> _LockedRun:
        """Run a program in a slot of this episode's model, again if it is preempted."""
        if sys.platform != "linux":
            raise errors.SandboxUnavailableError(f"programs cannot be confined on {sys.platform!r}")
        loop = asyncio.get_running_loop()
        while True:
            stop = asyncio.Event()
            hold = await self._slots.take(MODEL.get(), functools.partial(loop.call_soon_threadsafe, stop.set))
            try:
                done = await _run(program, stdin, limits, self._environment, self._slots, stop)
            finally:
                self._slots.give_back(hold)
            if done is not None:
                return done

    def _free_slots(self) -> None:
        """Start with all slots free: after a fork, the slots in use belong to the parent process."""
        self._slots = FairSlots(self._concurrency, patience_s=_PATIENCE_S, reserve=max(1, self._concurrency // 8))


def _room() -> int:
    """Return how many programs may run at once: 4 per CPU or 16, if half the memory holds them; at least 1 per CPU."""
    cores = os.cpu_count() or 1
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(cores, min(max(16, 4 * cores), memory_bytes // 2 // Limits().memory_bytes))


@dataclass(frozen=True, slots=True)
class _LockedRun:
    locks: tuple[str, ...]
    run: ProgramRun


def own_folder() -> contextlib.AbstractContextManager[Path]:
    """Return a context with a new folder for a program, removed at its end; also removes those of killed processes."""
    return temporary_folder("headgate-sandbox-")


async def _run(
    program: str, stdin: str, limits: Limits, environment: Mapping[str, str], slots: FairSlots, stop: asyncio.Event
) -> _LockedRun | None:
    started = time.monotonic()
    nice = _niceness(_NICEST if slots.is_heavy(MODEL.get()) else _NICE)
    with (
        own_folder() as folder,
        _memory_file(program) as program_fd,
        _memory_file(stdin) as stdin_fd,
    ):
        process = await asyncio.create_subprocess_exec(
            *bare_interpreter(),
            str(_LAUNCHER),
            *map(str, (program_fd, nice, limits.cpu_s, limits.memory_bytes)),
            *_readable_paths(),
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
            is_over = await watched.until_end(limits.wall_s, slots, stop)
        finally:
            await uninterrupted(watched.kill_and_reap())
    return watched.judged(time.monotonic() - started) if is_over else None


class _Watched:
    """A running program and its output so far. Owned by one `_run`; `kill_and_reap` always ends it."""

    def __init__(self, process: asyncio.subprocess.Process, output_bytes: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._streams = ((process.stdout, bytearray()), (process.stderr, bytearray()))
        self._limit = output_bytes + len(_LOCKED) + 32  # the launcher's line comes before the program's output
        self._outcome: Outcome | None = None  # set if this process ended the program

    async def until_end(self, wall_s: float, slots: FairSlots, stop: asyncio.Event) -> bool:
        """Wait until the program ends, writes too much, or has run for `wall_s`; return False if `stop` is set first.

        Time spent waiting for a CPU does not count, since the machine's load must not change a score.
        """
        started, left_s = time.monotonic(), wall_s
        ended, asked = asyncio.ensure_future(self._ended()), asyncio.ensure_future(stop.wait())
        try:
            while left_s > 0:
                await asyncio.wait((ended, asked), timeout=min(left_s, _TICK_S), return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    ended.result()
                    return True
                if asked.done():
                    return False
                if slots.is_heavy(MODEL.get()):
                    self._yield_to_others()
                left_s = wall_s + _waited_s(self._process.pid) - (time.monotonic() - started)
            self._outcome = Outcome.TIMEOUT
            return True
        finally:
            ended.cancel()
            asked.cancel()
            await asyncio.wait((ended, asked))

    async def _ended(self) -> None:
        async with asyncio.TaskGroup() as readers:
            for stream, written in self._streams:
                readers.create_task(self._read(stream, written))
        if self._outcome is None:  # a program may close its streams and keep running
            await self._process.wait()

    def _yield_to_others(self) -> None:
        """Lower the priority of the program and its session, since most kernels schedule between sessions first."""
        nice = _niceness(_NICEST)
        with contextlib.suppress(OSError):  # it has just ended, or the kernel limits the rate of changes
            os.setpriority(os.PRIO_PGRP, self._process.pid, nice)
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(nice))

    async def kill_and_reap(self) -> None:
        """Kill the process group, drain the pipes (the transport waits for that) and wait for the process."""
        self._kill()
        for stream, _ in self._streams:
            while await stream.read(_CHUNK_BYTES):
                pass
        await self._process.wait()

    def judged(self, wall_s: float) -> _LockedRun:
        """Return the run; raise if the launcher's first line is missing, since then the program did not run."""
        stdout, stderr = (bytes(written) for _, written in self._streams)
        first_line, _, stdout = stdout.partition(b"\n")
        status = self._process.returncode
        assert status is not None
        if not first_line.startswith(_LOCKED):
            reason = stderr.decode("utf-8", "replace").rstrip().rpartition("\n")[2] or f"exit status {status}"
            raise errors.SandboxUnavailableError(f"a program cannot be confined: {reason}")
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
        # The group has one member, since the locks forbid starting others. Once it has ended, its number may be reused,
        # so a process known to have ended is never signalled.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _waited_s(process: int) -> float:
    """Return for how many seconds a process was ready to run without a CPU, by its longest-waiting thread."""
    try:
        threads = [(thread / "schedstat").read_text().split() for thread in Path(f"/proc/{process}/task").iterdir()]
        return max(int(waited_ns) for _, waited_ns, _ in threads) / 1e9
    except (OSError, ValueError):  # it has ended, or the kernel does not report it
        return 0.0


def _outcome_of(status: int, stderr: bytes) -> Outcome:
    if status == 0:
        return Outcome.OK
    if status in (-signal.SIGXCPU, -signal.SIGKILL):  # the kernel sends the second if the program ignores the first
        return Outcome.TIMEOUT
    if stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
        return Outcome.MEMORY
    return Outcome.FAILED


def bare_interpreter() -> tuple[str, ...]:
    """Return the command line of a Python without packages."""
    interpreter = getattr(sys, "_base_executable", "") or sys.executable
    # No site (-S, which also halves the start-up time), no user site (-s), the script's folder not on the path (-P).
    # Not -I: it would ignore PYTHONHASHSEED, and this process sets the environment anyway.
    return (interpreter, "-s", "-S", "-P", "-B", "-X", "utf8")


def _niceness(beyond_own: int) -> int:
    return min(os.getpriority(os.PRIO_PROCESS, 0) + beyond_own, 19)


@functools.cache
def _readable_paths() -> tuple[str, ...]:
    """Return the paths that programs may read, folders with a slash: the standard library and what it loads.

    Not installed packages, because some contain the reference solutions of tasks.
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
    """Yield the descriptor of an in-memory file with `text`, positioned at its start."""
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

SANDBOX: Final = Sandbox()
"""The sandbox of this process: one bound on how many programs run at once."""
