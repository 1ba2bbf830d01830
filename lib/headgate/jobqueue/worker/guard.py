"""Stands between a worker and the command that it runs, as a small process of its own: `python -I -S guard.py …`.

The command and what it starts run as one process group. The guard ends that group - SIGTERM, and SIGKILL after a grace
period - as soon as the worker says so or is gone, or when the lease that the worker told it of is over although the
worker itself stands still (a stopped or starving process cannot look after its own leases). When the command ends, so
does whatever it left behind in its group. The guard's own end is the command's: its exit status, or its signal.

Standard input is the worker's line: one deadline per line, in seconds from now; its end means stop. Imports nothing of
Headgate: it starts within milliseconds.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


def main(arguments: list[str]) -> int:
    """Run a command under guard; `arguments` are the grace period in seconds, then the command."""
    grace_s, command = float(arguments[0]), arguments[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler, as it does not survive into the command; the worker's line tells when to stop.
        signal.signal(number, lambda *_: None)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        # The guard has one thread, and the command is what its user asked for.
        child = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_die_with_guard if sys.platform == "linux" else None,  # noqa: PLW1509
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    _guard(child, woken, grace_s)
    # Where the system can tell of an end without reaping, its number cannot be that of another group yet.
    _signal(child.pid, signal.SIGKILL)
    status = child.wait()
    if status < 0:
        _end_by(-status)
    return status


def _die_with_guard() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _guard(child: subprocess.Popen[bytes], woken: int, grace_s: float) -> None:
    """Return when the command has ended, by itself or by force."""
    group = child.pid
    deadline, is_stopping, rest = None, False, b""
    while not _has_ended(child):
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = select.select([woken] if is_stopping else [woken, 0], [], [], left_s)[0]
        if woken in ready:
            os.read(woken, 4096)
        elif 0 in ready and (said := os.read(0, 4096)):
            *lines, rest = (rest + said).split(b"\n")
            if lines:
                deadline = time.monotonic() + float(lines[-1])
        elif not is_stopping:
            is_stopping, deadline = True, time.monotonic() + grace_s
            _signal(group, signal.SIGTERM)
            _signal(group, signal.SIGCONT)
        else:
            _signal(group, signal.SIGKILL)
            deadline = None


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_by(number: int) -> None:
    """End as the command did, without a core file of one's own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
