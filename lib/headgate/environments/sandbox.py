"""A sandbox for untrusted Python programs between stdin and stdout: no network, files or processes, bounded cost."""

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
"""Runs one command within locks of its own, for environments that need more than a program between stdin and stdout."""

_CHUNK_BYTES: Final = 65_536
_SYSTEM_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_DEVICES: Final = ("/dev/null", "/dev/urandom", "/dev/zero")


LOCKS: Final = ("calls", "namespaces", "files")
"""All locks of the sandbox: the system-call filter, own namespaces, and Landlock. Without the first nothing is run."""

_ERRORS: Final = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
)
_NOT_DUMPABLE: Final = (4, 0, 0, 0, 0)  # prctl(PR_SET_DUMPABLE, 0)

_PATIENCE_S: Final = 0.5
"""A program that has run for less is not ended for a model with a better right to its slot: most end before."""

_NICE: Final = 5
"""Priority of programs, beyond this process's own: whatever else runs here goes before them."""

_NICEST: Final = 15
"""Of the programs of a heavy model."""

_TICK_S: Final = 0.5
"""Between two looks at a running program."""


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
        wall_s: from start to end, the start of the interpreter included, and what it waited for a processor left out.
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
        exit_status: of the process, negative for the signal that ended it.
        stdout: decoded as UTF-8, invalid bytes replaced; cut at the limit.
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
        """The reason why it is not clean in one line; empty when it is.

        Of what the program wrote it has the class of its error alone, if that is one of Python's: the line is stored.
        """
        if self.is_clean:
            return ""
        kind = self.stderr.rstrip().rpartition("\n")[2].partition(":")[0]
        return f"{self.outcome.value} (exit status {self.exit_status}{f', {kind}' if kind in _ERRORS else ''})"


class Sandbox:
    """Runs programs, at most `concurrency` at a time in this process, shared among the models that have some to run.

    More than there are processors, since most programs that last only wait; the kernel shares those out, by priority.
    A program of a model that has more than its share of slots is ended and run again later where another lacks one: it
    has no effect but its output, which nobody has seen. Lives as long as the process; holds nothing between runs.
    """

    def __init__(self, concurrency: int | None = None, hash_seed: int = 0) -> None:
        # Hashes of strings are seeded, so that a program that walks a set prints the same on every machine.
        self._environment = {"PYTHONHASHSEED": str(hash_seed), "TZ": "UTC", "LANG": "C.UTF-8"}
        self._concurrency = concurrency or _room()
        self._required: tuple[str, ...] = LOCKS
        self._locks: tuple[str, ...] | None = None
        self._free_slots()
        os.register_at_fork(after_in_child=self._free_slots)

    def require(self, locks: Collection[str]) -> None:
        """Refuse programs where one of these locks does not hold; all of `LOCKS` are required unless this says less."""
        self._required = tuple(lock for lock in LOCKS if lock in locks or lock == "calls")

    @property
    def not_held(self) -> tuple[str, ...]:
        """The locks that programs have run without, since they were not required."""
        return tuple(lock for lock in LOCKS if self._locks is not None and lock not in self._locks)

    async def run(self, program: str, stdin: str = "", limits: Limits | None = None) -> ProgramRun:
        """Return what `program` did with `stdin`. When the caller is cancelled, the program is killed first.

        Raises:
            SandboxUnavailableError: if this machine cannot lock the program in, or lacks a required lock.
        """
        await self.check()
        return (await self._run(program, stdin, limits or Limits())).run

    async def check(self) -> None:
        """Return if programs can run here.

        Raises:
            SandboxUnavailableError: if this machine cannot lock programs in, or lacks a required lock.
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

        They are tried once per process: a program attempts what they forbid.

        Raises:
            SandboxUnavailableError: if programs cannot be locked in here.
        """
        if self._locks is None:
            tried = await self._run(_BURGLAR, "", Limits())
            if tried.run.stdout != _REFUSED or not tried.run.is_clean:
                raise errors.SandboxUnavailableError(
                    f"the locks of the sandbox do not hold: {tried.run.problem or tried.run.stdout!r}"
                )
            self._locks = tried.locks
            # Nobody but root can read the memory or variables of this process from now on: keys are there.
            ctypes.CDLL(None).prctl(*_NOT_DUMPABLE)
        return self._locks

    async def _run(self, program: str, stdin: str, limits: Limits) -> _LockedRun:
        """Run a program in a slot of the model whose episode this is, anew when the slot is wanted back meanwhile."""
        if sys.platform != "linux":
            raise errors.SandboxUnavailableError(f"programs cannot be locked in on {sys.platform!r}")
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
        """Begin with no slot held: those that are held are the other process's, of which this one is a fork."""
        self._slots = FairSlots(self._concurrency, patience_s=_PATIENCE_S, reserve=max(1, self._concurrency // 8))


def _room() -> int:
    """Return how many programs run at once: four times the processors, and as many as fit into half of the memory."""
    cores = os.cpu_count() or 1
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(cores, min(max(16, 4 * cores), memory_bytes // 2 // Limits().memory_bytes))


@dataclass(frozen=True, slots=True)
class _LockedRun:
    locks: tuple[str, ...]
    run: ProgramRun


def own_folder() -> contextlib.AbstractContextManager[Path]:
    """Give a program a folder of its own, which goes with the context; those of killed processes go, too."""
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
    """A running program and what it has written. Owned by one `_run`; `kill_and_reap` ends it in every case."""

    def __init__(self, process: asyncio.subprocess.Process, output_bytes: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._streams = ((process.stdout, bytearray()), (process.stderr, bytearray()))
        self._limit = output_bytes + len(_LOCKED) + 32  # the launcher's line comes before the program's output
        self._outcome: Outcome | None = None  # set when this side ended the program

    async def until_end(self, wall_s: float, slots: FairSlots, stop: asyncio.Event) -> bool:
        """Return when the program has ended by itself, written too much, or run for `wall_s`; False if it must stop.

        What it waited for a processor is not counted: how busy the machine is must not change a score.
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
        if self._outcome is None:  # a program may close its streams and go on
            await self._process.wait()

    def _yield_to_others(self) -> None:
        """Let whatever has run for less go first; most kernels share among sessions before they do within them."""
        nice = _niceness(_NICEST)
        with contextlib.suppress(OSError):  # it has just ended, or the kernel wants to be asked less often
            os.setpriority(os.PRIO_PGRP, self._process.pid, nice)
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(nice))

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


def _waited_s(process: int) -> float:
    """Return how long a process could have run and got no processor, by that of its threads that waited longest."""
    try:
        threads = [(thread / "schedstat").read_text().split() for thread in Path(f"/proc/{process}/task").iterdir()]
        return max(int(waited_ns) for _, waited_ns, _ in threads) / 1e9
    except (OSError, ValueError):  # it ended meanwhile, or the kernel does not say
        return 0.0


def _outcome_of(status: int, stderr: bytes) -> Outcome:
    if status == 0:
        return Outcome.OK
    if status in (-signal.SIGXCPU, -signal.SIGKILL):  # the kernel sends the second where the first is ignored
        return Outcome.TIMEOUT
    if stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
        return Outcome.MEMORY
    return Outcome.FAILED


def bare_interpreter() -> tuple[str, ...]:
    """Return the words that start a Python without packages."""
    interpreter = getattr(sys, "_base_executable", "") or sys.executable
    # No site (-S, which also halves the start), no user site (-s), no folder of the script on the path (-P). Not -I:
    # it would ignore PYTHONHASHSEED, and the environment is ours anyway.
    return (interpreter, "-s", "-S", "-P", "-B", "-X", "utf8")


def _niceness(beyond_own: int) -> int:
    return min(os.getpriority(os.PRIO_PROCESS, 0) + beyond_own, 19)


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

SANDBOX: Final = Sandbox()
"""The sandbox of this process: one bound on how many programs run at once."""
