"""A small program that runs a command and ends everything it started when its own parent goes away.

Run as `python -I -S keeper.py GRACE_S COMMAND…`. It imports the standard library only, so that it is there within
milliseconds. The command ends when it ends by itself, when this program gets SIGTERM, or, where standard input is a
pipe, when its other end closes, which the operating system does however the parent dies. Then every process that
descends from the command gets SIGTERM, `GRACE_S` seconds to end in order, and SIGKILL after that.

As the first process of a container (`python -m headgate.orchestration.keeper 60 prefect worker start …`) it lets the
flow runs of a worker drain, which the worker itself does not wait for.

On Linux this program adopts orphans (`PR_SET_CHILD_SUBREAPER`), so that a process which survives its own parent is
still found. Elsewhere it reaches the process group of the command only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LAST_WORDS_S = 5.0
"""How long killed processes may take to be gone; they are only waited for, so it is never reached in practice."""


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status, 128 + signal when one ended it."""
    grace_s, command = float(arguments[0]), arguments[1:]
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, which ends us in its own order
    is_stopping = _Flag()
    signal.signal(signal.SIGTERM, lambda *_: is_stopping.set())
    woken = _wakeup_pipe()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keeper = os.getpid()
    child = subprocess.Popen(  # noqa: S603 - the command is the caller's own
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _prepare_child(keeper),  # noqa: PLW1509 - there is one thread only
    )
    parent = _parent_pipe()
    status: int | None = None
    while status is None and not is_stopping:
        if set(parent) & set(_wait([*parent, woken], None)):
            is_stopping.set()
        status = child.poll()
    deadline = time.monotonic() + grace_s
    if status is None:
        child.terminate()
        status = _ended(child, woken, deadline)
    _end_descendants(child, woken, deadline)
    status = child.wait()
    return status if status >= 0 else 128 - status


def _parent_pipe() -> list[int]:
    """Return standard input if it is a pipe, whose end tells that the parent is gone."""
    mode = os.fstat(0).st_mode
    return [0] if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else []


class _Flag:
    """What a signal handler sets; reads as true from then on."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def __bool__(self) -> bool:
        return self._is_set


def _prepare_child(keeper: int) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # should this program be killed, the command does not stay behind
    if os.getppid() != keeper:  # it was killed just before
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wakeup_pipe() -> int:
    """Return a descriptor that becomes readable with every signal, the end of a child included."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _wait(descriptors: list[int], deadline: float | None) -> list[int]:
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    ready = select.select(descriptors, [], [], left)[0]
    woken = descriptors[-1]
    if woken in ready:
        with contextlib.suppress(BlockingIOError):
            while os.read(woken, 4096):
                pass
    return ready


def _ended(child: subprocess.Popen[bytes], woken: int, deadline: float) -> int | None:
    while child.poll() is None and time.monotonic() < deadline:
        _wait([woken], deadline)
    return child.poll()


def _end_descendants(child: subprocess.Popen[bytes], woken: int, deadline: float) -> None:
    """End what the command left behind: politely until the deadline, then not."""
    asked: set[int] = set()
    killing_since: float | None = None
    while left := _living(child):
        now = time.monotonic()
        if now < deadline:
            for pid in left - asked:
                _signal(pid, signal.SIGTERM)
            asked |= left
            until = deadline
        else:
            killing_since = killing_since or now
            if now - killing_since > _LAST_WORDS_S:
                return
            for pid in left:
                _signal(pid, signal.SIGKILL)
            until = now + 0.1
        _wait([woken], min(until, now + 0.5))


def _living(child: subprocess.Popen[bytes]) -> set[int]:
    """Return the descendants that still run; those that ended are reaped, and the command's own status is kept."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child.pid:
                child.returncode = os.waitstatus_to_exitcode(ended[1])
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, 0)
            return {-child.pid}
        return set()
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text(errors="replace").rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(path.parent.name))
    found: set[int] = set()
    unseen = [os.getpid()]
    while unseen:
        for pid in children.get(unseen.pop(), []):
            found.add(pid)
            unseen.append(pid)
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
