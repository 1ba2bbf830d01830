"""Sending to a process that may not be reading, without ever waiting for it."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading


class Outbox:
    """Sends at once what the socket takes; the rest goes out in a thread that exists only where it was needed.

    A process that hangs does not read. A reply of a megabyte to it must not stop the event loop of its caller.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # protects the order of what is sent
        self._backlog: queue.SimpleQueue[bytes | None] | None = None

    def send(self, data: bytes) -> None:
        """Send `data` after everything before it; silent when the process is gone: its reader says so."""
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
        """Let the thread end, if there is one. The socket has to be shut down before."""
        with self._lock:
            if self._backlog is not None:
                self._backlog.put(None)

    def _sent(self, data: bytes) -> bytes:
        """Return what the socket did not take."""
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
