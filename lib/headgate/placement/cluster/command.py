"""A command as placed work: its output can be read while it runs, and it can be cancelled."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.placement.cluster.occupant import placement_context
from headgate.placement.errors import InvalidPlacementError

KEPT_LINES: Final = 10_000
"""Lines of output that are kept; a reader that polls too rarely misses the oldest."""

_LONGEST_LINE: Final = 8_192
_TAIL_LINES: Final = 200
_NOT_STARTED: Final = {FileNotFoundError: 127, PermissionError: 126}
"""A shell's exit statuses for a command that cannot be started."""

_GUARD: Final = """
import os, sys
host, command = map(int, sys.argv[1:])
if guard := os.fork():  # Ray kills the children of a worker that ends
    os.waitpid(guard, 0)  # the first process of a container may not do so
    os._exit(0)
if not sys.stdin.read():  # nobody said that the command has ended
    os.killpg(0, 9) if os.getpgrp() == host else os.kill(command, 9)
"""
"""Ends a command whose host died with its node's raylet, which otherwise ends the group of a dead host."""


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """How a command ended.

    `status` is the exit status; 128 plus the signal number if a signal ended it, as in a shell. `tail` has the last of
    the `lines` lines of output.
    """

    status: int
    tail: tuple[str, ...] = ()
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """Lines of a command's output; `next_line` is the number to ask from next."""

    lines: tuple[str, ...]
    next_line: int


class CommandWork:
    """Runs one command. Owned by its host; `lines` and `cancel` may be called from other threads while `run` runs.

    A preempted command starts over when it is placed again; only what it wrote to files remains. It runs in `folder` if
    its node has that folder, and learns what it is from HEADGATE_REQUEST, HEADGATE_ATTEMPT, HEADGATE_RANK and
    HEADGATE_WORLD_SIZE.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], folder: str = "") -> None:
        if not command:
            raise InvalidPlacementError("There is no command to run", next_step="Name it after `--`.")
        self._command = tuple(command)
        self._variables = dict(variables)
        self._folder = folder
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._told = 0
        self._lock = threading.Lock()  # protects the lines and the process, which other threads read
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False

    def run(self) -> CommandEnded:
        """Run the command to its end, and return how it ended."""
        try:
            process = self._started()
        except OSError as error:
            status = _NOT_STARTED.get(type(error), 1)
            return CommandEnded(status, (f"{self._command[0]} cannot be started: {error}",), 1)
        if process is None:
            return CommandEnded(143)
        assert process.stdout is not None, "it was started with a pipe"
        with _guarded(process.pid), process:  # until it has ended: it may close its output long before
            while line := process.stdout.readline(_LONGEST_LINE):  # a longer one is read, and shown, in parts
                with self._lock:
                    self._lines.append(line.rstrip("\n"))
                    self._told += 1
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return CommandEnded(status, tuple(self._lines)[-_TAIL_LINES:], self._told)

    def lines(self, since: int) -> Output:
        """Return the lines from number `since` on, or from the oldest one still kept."""
        with self._lock:
            first = self._told - len(self._lines)
            return Output(tuple(itertools.islice(self._lines, max(0, since - first), None)), self._told)

    def cancel(self) -> None:
        """Ask the command to end (SIGTERM); its host kills whatever remains."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.terminate()

    def _started(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._cancelled:
                return None
            # In the process group of the host: whatever ends the group ends the command, too.
            self._process = subprocess.Popen(  # noqa: S603 - the command that the user submits
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._folder if self._folder and Path(self._folder).is_dir() else None,
                env=os.environ | _about_itself() | self._variables,
                text=True,
                errors="replace",
            )
            return self._process


@contextmanager
def _guarded(command: int) -> Iterator[None]:
    words = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), str(command)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as guard:  # noqa: S603 - this file's own program
        try:
            yield
        finally:
            guard.communicate(b"ended")


def _about_itself() -> dict[str, str]:
    try:
        here = placement_context()
    except InvalidPlacementError:
        return {}
    return {
        "HEADGATE_REQUEST": here.request_id,
        "HEADGATE_ATTEMPT": str(here.attempt),
        "HEADGATE_RANK": str(here.rank),
        "HEADGATE_WORLD_SIZE": str(here.world_size),
    }
