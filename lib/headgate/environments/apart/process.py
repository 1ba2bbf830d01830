"""The parent's side of one child process: start it, call it, watch it, quote its output and end it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO, Final

from headgate.core.errors import EnvironmentFailedError
from headgate.environments.apart import frames
from headgate.environments.apart.frames import (
    KILLED_ABOVE,
    ApartLimits,
    Call,
    Calls,
    Frame,
    MovedError,
    Source,
    failure_of,
    settle,
)
from headgate.environments.shares import MODEL


class Outbox:
    """Sends what the socket accepts at once; a thread, started only when needed, sends the rest.

    A hanging process does not read. Sending a megabyte to it must not block the caller's event loop.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # protects the order of the data
        self._backlog: queue.SimpleQueue[bytes | None] | None = None

    def send(self, data: bytes) -> None:
        """Send `data` after all earlier data; does nothing when the process is gone, which its reader reports."""
        with self._lock:
            if self._backlog is None:
                data = self._sent(data)
                if not data:
                    return
                self._backlog = queue.SimpleQueue()
                threading.Thread(
                    target=self._work, args=(self._backlog,), name="headgate-apart-out", daemon=True
                ).start()
            self._backlog.put(data)

    def close(self) -> None:
        """Let the thread end, if there is one. The socket must be shut down first."""
        with self._lock:
            if self._backlog is not None:
                self._backlog.put(None)

    def _sent(self, data: bytes) -> bytes:
        """Return the data that the socket did not accept."""
        try:
            return data[self._connection.send(data, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""

    def _work(self, backlog: queue.SimpleQueue[bytes | None]) -> None:
        with contextlib.suppress(OSError):
            while (data := backlog.get()) is not None:
                self._connection.sendall(data)


KEPT_BYTES: Final = 1024 * 1024
"""Output kept on disk, checked at every tick of the keeper; older output is dropped."""

_QUOTED_BYTES: Final = 4_096
_QUOTED_LINES: Final = 5
_QUOTED_CHARS: Final = 600
_LOOKS: Final = 3

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MIB: Final = 1024 * 1024

_START_S: Final = 60.0
"""Time for the interpreter to start and import Headgate, however short the deadline of a call is."""

_STALLED_S: Final = 1.0
"""A process that leaves a call unstarted for longer gets no new episode while another can take it."""

_HEED_S: Final = 1.0
"""Time for a late call to react to its cancellation; one that awaits does so without affecting other calls."""


class Printed:
    """An unnamed file for a process's stdout and stderr: writing never blocks, and no reader is needed.

    Lives as long as its `Child`, which owns it.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="headgate-printed-")  # noqa: SIM115 - closed by `close`
        self.descriptor: Final = self._file.fileno()
        # In append mode, truncating the file moves the writer back to its start.
        flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags | os.O_APPEND)

    def trim(self) -> None:
        """Drop old output when there is much; retries a few times if more is printed meanwhile, so as to keep that."""
        if self._size() > KEPT_BYTES:
            for _ in range(_LOOKS):
                size, tail = self._size(), self._tail()
                if size == self._size():
                    break
            os.ftruncate(self.descriptor, 0)
            os.write(self.descriptor, tail)

    def quoted(self) -> str:
        """Return the last lines as an addition to a sentence; empty if nothing was printed."""
        lines = self._tail().decode(errors="replace").split("\n")
        text = " | ".join([line.strip() for line in lines if line.strip()][-_QUOTED_LINES:])
        return f"; it printed: {text[-_QUOTED_CHARS:]}" if text else ""

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._file.close()

    def _size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def _tail(self) -> bytes:
        return os.pread(self.descriptor, _QUOTED_BYTES, max(0, self._size() - _QUOTED_BYTES))


class Child:
    """A process that runs environments of one `Source`. Created by the keeper's thread, lives until it ends or dies.

    Belongs to no event loop: one reader thread passes each answer to the caller that waits for it.

    Attributes:
        load: episodes open in it; counted by the `Host`.
        is_retiring: whether it holds too much memory, and gets no new episode.
        blocked_by: models whose answers kept episodes of other models waiting; only their episodes stay in it.
    """

    def __init__(self, source: Source, limits: ApartLimits) -> None:
        self.source = source
        self.load = 0
        self.is_retiring = False
        self.blocked_by: set[str] = set()
        self._limits = limits
        self._calls = Calls()
        self._numbers = itertools.count(1)  # `next` on it is atomic
        self._heard_at = time.monotonic() + max(0.0, _START_S - limits.call_s)
        self.why_gone = ""
        """What ended it, as a clause; empty while it lives."""
        self._is_gone = threading.Event()
        # Protects `why_gone`, and ensures that no reaped group is signalled and no closed file written.
        self._lock = threading.Lock()
        with contextlib.ExitStack() as unless_started:
            self._printed = Printed()
            unless_started.callback(self._printed.close)
            self._connection, theirs = socket.socketpair()
            unless_started.callback(self._connection.close)
            self._outbox = Outbox(self._connection)
            with theirs:
                self._process = _started(source, limits, theirs.fileno(), self._printed.descriptor)
            unless_started.callback(self._process.kill)
            threading.Thread(target=self._read, name=f"headgate-apart-{self._process.pid}", daemon=True).start()
            unless_started.pop_all()

    @property
    def process_id(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._is_gone.is_set() or bool(self.why_gone)

    @property
    def is_busy(self) -> bool:
        """Whether any call is pending."""
        return self._calls.count > 0

    def is_stalled(self) -> bool:
        """Return whether a call has been waiting for too long to be started."""
        return self._calls.is_stalled(time.monotonic(), _STALLED_S)

    def call(self, do: str, environment: str, **arguments: Any) -> Call:
        """Send a call; its future gets the answer or the exception. Cancelling the future cancels the call.

        Raises:
            TypeError: if an argument cannot be serialised.
            ValueError: if the arguments are too long.
        """
        call = Call(do, environment, next(self._numbers), time.monotonic(), MODEL.get())
        about = {"do": do, "call": call.number, "environment": environment, "model": call.model}
        data = frames.packed(about | arguments)
        self._calls.add(call)
        if do != "close":  # a close runs to its end even if its caller is cancelled
            call.future.add_done_callback(lambda future: self._cancel(call.number) if future.cancelled() else None)
        self._outbox.send(data)
        if self._is_gone.is_set():  # it has just ended, and the reader may have settled its calls before this one
            self._settle_all()
        return call

    def end(self) -> None:
        """Ask the process to close its episodes and end."""
        with self._lock:
            self.why_gone = self.why_gone or "it was no longer needed"
        self._outbox.send(frames.packed({"do": "end"}))

    def kill(self, reason: str = "it was no longer needed") -> None:
        """Kill the process and its descendants."""
        with self._lock:
            self.why_gone = self.why_gone or reason
            self._kill_all()

    def abandon(self) -> None:
        """Release everything after a fork: the child belongs to the parent process."""
        self._lock, self._calls, self._is_gone = threading.Lock(), Calls(), threading.Event()
        self._outbox = Outbox(self._connection)
        self.why_gone = "it belongs to the process from which this one was forked"
        self._is_gone.set()
        self._process.returncode = 0  # so that it is never waited for here
        with contextlib.suppress(OSError):
            os.close(self._connection.detach())  # `close` would leave it open, since the reader's stream refers to it
        self._let_go()

    def wait(self, timeout_s: float) -> bool:
        """Return whether it has ended within `timeout_s`."""
        return self._is_gone.wait(timeout_s)

    def examine(self, now: float) -> None:
        """Kill the process if a call takes too long or it holds too much memory; called at every tick of the keeper."""
        with self._lock:
            if self._is_gone.is_set():
                return
            with contextlib.suppress(OSError):  # a full disk: the next tick tries again
                self._printed.trim()
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self._kill_all()  # its descendants may hold the socket open, which would hide its end
                return
        self._hurry(now)
        self._weigh(resident_mib(self._process.pid))

    def _hurry(self, now: float) -> None:
        """Give up a call that takes too long, and kill the process if it does not react.

        Before that, calls that wait behind a model's blocking answer move to another process.
        """
        blocking = self._calls.blocking(now, _STALLED_S)
        if blocking is not None:
            self.blocked_by.add(blocking.model)
            for call in self._calls.withdrawn(self.blocked_by):
                settle(call.future, MovedError("the answer of another model's episode blocks its process"))
                self._cancel(call.number)
        unheeded = self._calls.unheeded(now, _HEED_S)
        if unheeded is not None:
            self.kill(self._lateness(unheeded))
        late = self._calls.late(now, self._limits.call_s, self._heard_at)
        if late is None:
            return
        if late.begun_at is None:
            self.kill(self._lateness(late))
            return
        late.given_up_at = now
        label = f"environment {late.environment!r}" if late.environment else self.source.label
        settle(late.future, EnvironmentFailedError(f"{label} failed: {self._lateness(late)}"))
        self._cancel(late.number)

    def _weigh(self, held_mib: float) -> None:
        limit = self._limits.memory_mib
        if held_mib > KILLED_ABOVE * limit:
            much = f"more than {KILLED_ABOVE:g} times environment_memory_mib={limit}"
            self.kill(f"it held {held_mib:,.0f} MiB of memory, {much}")
        elif held_mib > limit:
            self.is_retiring = True

    def _lateness(self, call: Call) -> str:
        limit = f"environment_call_s={self._limits.call_s:g}"
        if call.begun_at is None:
            return f"it did not answer within {limit}"
        return f"{call.do} of environment {call.environment!r} took longer than {limit}"

    def _kill_all(self) -> None:
        """Kill the process and its group. Needs the lock: once it is reaped, its process id may be reused."""
        if not self._is_gone.is_set():
            for end in (os.killpg, os.kill):  # it may have left its group
                with contextlib.suppress(ProcessLookupError):
                    end(self._process.pid, signal.SIGKILL)

    def _read(self) -> None:
        """Pass on answers until the process is gone, then fail all pending calls."""
        try:
            with self._connection.makefile("rb") as stream:
                while (body := _next_body(stream)) is not None:
                    self._take(frames.unpacked(body))
        except OSError:
            pass  # it is gone, with some of our data unread
        except Exception as error:  # noqa: BLE001 - not a frame: an environment wrote into the socket
            self.kill(f"it sent an unreadable frame ({type(error).__name__}: {str(error)[:100]})")
        finally:
            self._bury()

    def _take(self, frame: Frame) -> None:
        self._heard_at = time.monotonic()
        number = frame["call"]
        if "begun" in frame:
            self._calls.begun(number, self._heard_at)
            return
        call = self._calls.settled(number)
        if call is None:
            return
        label = f"environment {call.environment!r}" if call.environment else self.source.label
        outcome = failure_of(frame, label, call.do) if "raised" in frame else frame
        if not settle(call.future, outcome) and "opening" in frame:
            self.call("close", call.environment, episode=number)  # its caller was cancelled

    def _cancel(self, number: int) -> None:
        self._outbox.send(frames.packed({"do": "cancel", "call": number}))

    def _bury(self) -> None:
        """Reap the process, and fail all pending calls with the reason."""
        with self._lock:
            self._kill_all()
            status = self._process.wait()
            self.why_gone = (self.why_gone or _ending(status)) + self._printed.quoted()
            self._is_gone.set()
        self._settle_all()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._outbox.close()
        self._connection.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._printed.close()

    def _settle_all(self) -> None:
        for call in self._calls.all_settled():
            settle(call.future, self.lost(call.environment, call.do))

    def lost(self, environment: str, do: str) -> EnvironmentFailedError:
        """Return the error for a call to this process after its end."""
        whose = f"environment {environment!r}" if environment else self.source.label
        return EnvironmentFailedError(f"the process of {whose} ended in {do}: {self.why_gone}")


def _started(source: Source, limits: ApartLimits, descriptor: int, printed: int) -> subprocess.Popen[bytes]:
    """Return a process that serves `source` on the socket `descriptor` and prints into the file `printed`."""
    return subprocess.Popen(  # noqa: S603 - our own module, and an entry point of an installed package
        [
            *(sys.executable, "-P", "-m", "headgate.environments.apart"),
            *(str(descriptor), str(os.getpid()), ",".join(limits.sandbox_locks)),
            *(source.kind, source.name, source.value),
        ],
        stdin=subprocess.PIPE,  # the process group watches its other end, which closes when this process ends
        stdout=printed,
        stderr=printed,
        pass_fds=(descriptor,),
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )


def _next_body(stream: BinaryIO) -> bytes | None:
    """Return the body of the next frame; None at the end of the stream, also in the middle of a frame."""
    header = stream.read(frames.HEADER.size)
    if len(header) < frames.HEADER.size:
        return None
    length = frames.length(header)
    body = stream.read(length)
    return body if len(body) == length else None


def _ending(status: int) -> str:
    if status >= 0:
        return f"it exited with status {status}"
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it was ended by signal {-status}"


def resident_mib(process: int) -> float:
    """Return the resident memory in MiB of `process` and its descendants; 0 if it is gone, or without /proc.

    Pages that several of them share count once for each.
    """
    return sum(_pages(one) for one in _tree(process)) * _PAGE_BYTES / _MIB


def _tree(process: int) -> list[int]:
    found, ahead = [], [process]
    while ahead:
        one = ahead.pop()
        found.append(one)
        ahead.extend(_children(one))
    return found


def _children(process: int) -> list[int]:
    try:
        texts = [(thread / "children").read_text() for thread in Path(f"/proc/{process}/task").iterdir()]
    except OSError:  # it, or one of its threads, has ended
        return []
    return [int(child) for text in texts for child in text.split()]


def _pages(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
