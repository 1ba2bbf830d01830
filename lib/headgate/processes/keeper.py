"""A small program that runs a command and ends everything it started.

Run as `python -I -S keeper.py [--leased] GRACE_S COMMAND…`.

The keeper waits until the command ends by itself, the keeper gets SIGTERM, or, where standard input is a pipe, the
other end closes, which the operating system does however the parent dies. Then every descendant of the command gets
SIGTERM, `GRACE_S` seconds to end cleanly, and SIGKILL after that. The keeper ends as the command did: with its exit
status, or by its signal.

With `--leased` only the parent decides when to stop, or its lease does: each line of standard input is a deadline, in
seconds from now, at which the command is ended even if the parent is stalled (a stopped or starved process cannot renew
its leases). SIGTERM, which a cluster sends to all processes of a job, is left to the parent.

As the first process of a container (`python -m headgate.processes.keeper 60 prefect worker start …`) it lets a worker's
flow runs drain. A Prefect worker that gets SIGTERM kills its flow runs, so the keeper sends SIGKILL to the worker and
SIGTERM to the flow runs.

On Linux the keeper adopts orphans (`PR_SET_CHILD_SUBREAPER`), so that a process which survives its own parent is still
found. Elsewhere it reaches only the command's process group. It imports only the standard library, so that it starts
within milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_LAST_WORDS_S = 5.0
"""How long to wait for killed processes to disappear; never reached in practice."""


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status, 128 + signal where this process cannot end by that signal."""
    is_leased = arguments[0] == "--leased"
    grace_s, *command = arguments[is_leased:]
    is_stopping: list[bool] = []
    woken = _wakeup_pipe(lambda *_: None if is_leased else is_stopping.append(True))  # before the command starts
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keeper = os.getpid()
    try:
        child = subprocess.Popen(  # noqa: S603 - the command is the caller's own
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: _prepare_child(keeper, is_leased),  # noqa: PLW1509 - there is only one thread
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    _wait_for_end_or_stop(child, woken, is_stopping, is_leased)
    deadline = time.monotonic() + float(grace_s)
    is_killed = False
    if child.poll() is None:
        if is_leased:  # a shell forwards no signal while it waits for a program
            _signal(-child.pid, signal.SIGTERM)
            _signal(-child.pid, signal.SIGCONT)
        else:
            is_killed = _is_prefect_worker(command)
            child.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        while child.poll() is None and time.monotonic() < deadline:
            _wait([woken], deadline)
    _end_descendants(child, woken, deadline)
    status = child.wait()
    if is_killed:
        return 0
    if status < 0:
        _end_by(-status)
    return status if status >= 0 else 128 - status


def _is_prefect_worker(command: list[str]) -> bool:
    """Return whether the command is `prefect worker …`, by any path, or `python -m prefect worker …`."""
    return any(
        word.rpartition("/")[2] == "prefect" and after == "worker" for word, after in itertools.pairwise(command)
    )


def _wait_for_end_or_stop(child: subprocess.Popen[bytes], woken: int, is_stopping: list[bool], is_leased: bool) -> None:
    """Wait until the command has ended, or must be ended."""
    parent = [0] if is_leased or _is_pipe(0) else []
    deadline, rest = None, b""
    while child.poll() is None and not is_stopping:
        ready = _wait([*parent, woken], deadline)
        if 0 in ready:
            said = os.read(0, 4096)
            if not said:
                return
            *lines, rest = (rest + said).split(b"\n")
            if is_leased and lines:
                deadline = time.monotonic() + float(lines[-1])
        elif not ready and deadline is not None and time.monotonic() >= deadline:
            return


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _prepare_child(keeper: int, is_leased: bool) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # If this program is killed, the command must not stay behind.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL if is_leased else signal.SIGTERM)
    if os.getppid() != keeper:  # the keeper was killed just before
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wakeup_pipe(on_sigterm: Callable[..., object]) -> int:
    """Return a descriptor that becomes readable with every signal, including the end of a child."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    # SIGINT and SIGHUP of a terminal are for the parent, which ends its children in its own order.
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, on_sigterm)
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


def _end_descendants(child: subprocess.Popen[bytes], woken: int, deadline: float) -> None:
    """End what the command left behind: by SIGTERM until the deadline, then by SIGKILL."""
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
    """Return the descendants that still run; reaps those that ended, keeping the command's own status."""
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
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib takes longer to import than the rest
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:  # noqa: PTH123
            state, parent = file.read().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(name))
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


def _end_by(number: int) -> None:
    """End by the command's signal, without a second core file; the first process of a container cannot."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
