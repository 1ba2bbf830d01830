"""A newcomer's terminal: one bash in a folder and a home of its own, on a machine without internet."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.house.tree import ROOT

_COPIED: Final = ("blocks", "flows", "deployments", "prefect.yaml")
"""What pages use of the repository's folder, in which a reader types."""

_NOT_OURS: Final = re.compile(
    r"HEADGATE_|OPENAI_|PREFECT_|RAY_|AWS_|PG|PYTHON|VIRTUAL_ENV|MY_MODEL|.*_proxy$", re.IGNORECASE
)
"""Variables of whoever runs the tests, which a newcomer does not have."""

_LOOK_S: Final = 0.05
_END_S: Final = 30.0


class CommandFailed(AssertionError):  # noqa: N818 - it is how a test fails
    """A command of a page did not do what the page says; its text has the command and its output."""


@dataclass(slots=True)
class Server:
    """A command that runs until Ctrl-C."""

    command: str
    group: int
    output: Path


@dataclass(slots=True)
class Terminal:
    """A bash whose variables, folder and background jobs last from one command to the next.

    Attributes:
        folder: where it stands at first, with a copy of what the repository has for users.
        servers: commands that run until the terminal is closed.
    """

    folder: Path
    _bash: subprocess.Popen[str]
    _statuses: int
    _reported: int
    _logs: Path
    servers: list[Server] = field(default_factory=list)
    _count: int = 0

    def run(self, command: str, *, status: int = 0, limit_s: float = 300.0) -> str:
        """Run a command to its end and return what it wrote.

        Raises:
            CommandFailed: if it ends with another status, or not within the limit.
        """
        output = self._send(command, f"eval {shlex.quote(command)} </dev/null")
        ended = self._status(limit_s)
        said = output.read_text(errors="replace")
        if ended is None:
            raise CommandFailed(f"$ {command}\n{said}\nIt has not ended within {limit_s:g} s.")
        if ended != status:
            raise CommandFailed(f"$ {command}\n{said}\nIts exit status is {ended}, not {status}.")
        return said

    def serve(self, command: str, ready: str, *, limit_s: float = 120.0) -> Server:
        """Start a command that runs until Ctrl-C, and return once its output has what `ready` matches.

        What changes on a screen is written as to one.

        Raises:
            CommandFailed: if it ends before, or does not come to it within the limit.
        """
        output = self._send(command, f"TTY_COMPATIBLE=1 eval {shlex.quote(command)} </dev/null", background=True)
        group = self._status(limit_s)
        assert group is not None, "bash answers at once"
        server = Server(command, group, output)
        self.servers.append(server)
        deadline = time.monotonic() + limit_s
        while not re.search(ready, said := output.read_text(errors="replace")):
            if not _is_alive(group) or time.monotonic() > deadline:
                raise CommandFailed(f"$ {command}\n{said}\nIt ended, or did not say {ready!r} within {limit_s:g} s.")
            time.sleep(_LOOK_S)
        return server

    def interrupt(self, server: Server, *, limit_s: float = _END_S) -> str:
        """Press Ctrl-C and return all that the command wrote.

        Raises:
            CommandFailed: if it does not end within the limit, or by an error of its own.
        """
        self.servers.remove(server)
        with suppress(ProcessLookupError):
            os.killpg(server.group, signal.SIGINT)
        self._send("", f"wait {server.group}")
        ended = self._status(limit_s)
        said = server.output.read_text(errors="replace")
        if ended not in (0, 128 + signal.SIGINT):
            raise CommandFailed(
                f"$ {server.command}\n{said}\nAfter Ctrl-C its exit status is {ended} (None: it runs on)."
            )
        return said

    def stop(self) -> None:
        """Press Ctrl-C in all that runs, the last one first.

        Raises:
            CommandFailed: if something does not end by it.
        """
        for server in reversed(self.servers.copy()):
            self.interrupt(server)

    def _send(self, command: str, line: str, *, background: bool = False) -> Path:
        """Have bash run a line with a file for its output, and report its status, or its group in the background."""
        self._count += 1
        output = self._logs / f"{self._count:03}.txt"
        output.write_text("")
        after = f"& printf '%s\\n' $! >&{self._statuses}" if background else f"; printf '%s\\n' $? >&{self._statuses}"
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line} >>{shlex.quote(str(output))} 2>&1 {self._statuses}>&- {after}\n")
        self._bash.stdin.flush()
        return output

    def _status(self, limit_s: float) -> int | None:
        """Return the next number that bash reports, None when none comes within the limit."""
        said = b""
        deadline = time.monotonic() + limit_s
        while not said.endswith(b"\n"):
            readable, _, _ = select.select([self._reported], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return None
            said += os.read(self._reported, 100)
        return int(said)


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Give a terminal; with it everything ends that was started in it, daemons included.

    Where this user may make one (root on Linux), it has a network of its own, in which there is loopback and nothing
    else: no port is taken, and there is no internet. Elsewhere terminals share the machine's network, one at a time.
    """
    with nullcontext() if _has_own_network() else _alone_on_this_machine(), _bash() as typed:
        yield typed


@contextmanager
def _alone_on_this_machine() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / "walk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _bash() -> Iterator[Terminal]:
    scratch = Path(tempfile.mkdtemp(prefix="walk-"))  # a short path: Ray's sockets lie below it
    folder, home, logs = scratch / "headgate", scratch / "home", scratch / "logs"
    for new in (folder, home, logs):
        new.mkdir(parents=True)
    for name in _COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    reading, writing = os.pipe()
    command = ["bash", "--norc", "--noprofile"]
    if _has_own_network():
        command = ["unshare", "--net", "bash", "-c", f"ip link set lo up && exec {shlex.join(command)}"]
    bash = subprocess.Popen(
        command,
        cwd=folder,
        env=_environ(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        pass_fds=[writing],
        start_new_session=True,
    )
    assert bash.stdin is not None
    try:
        bash.stdin.write("set -m\n")  # each background job has a process group, which Ctrl-C ends
        yield Terminal(folder, bash, writing, reading, logs)
    finally:
        _end(home)
        bash.wait()
        with suppress(BrokenPipeError):
            bash.stdin.close()
        os.close(reading)
        os.close(writing)
        shutil.rmtree(scratch)


def _environ(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not _NOT_OURS.match(name)}
    path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    temporary = home / "tmp"
    temporary.mkdir()
    return kept | {"HOME": str(home), "TMPDIR": str(temporary), "PATH": path, "COLUMNS": "200"}


@cache
def _has_own_network() -> bool:
    """Return whether this user may make a network with nothing but loopback in it."""
    try:
        tried = ["unshare", "--net", "ip", "link", "set", "lo", "up"]
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _end(home: Path) -> None:
    """End every process that has this home; a daemon has left its group, and keeps its variables."""
    mark = f"HOME={home}".encode()
    while found := [pid for pid, variables in _variables() if mark in variables]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def _variables() -> Iterator[tuple[int, list[bytes]]]:
    """Give each process with the variables that it was started with; one that has ended has none."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended meanwhile, or is somebody else's
            yield int(environ.parent.name), environ.read_bytes().split(b"\0")


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
