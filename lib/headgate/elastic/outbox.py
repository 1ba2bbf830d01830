"""The pool's output: commands and events, in order.

Commands about workers are answered by a report with the same worker and epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events import Event


@dataclass(frozen=True, slots=True)
class _OfRequest:
    request_id: str
    worker_id: str
    epoch: int


class Send(_OfRequest):
    """Send a request to a worker; answered by `begun`, then `ended` or `broke`, with this epoch."""


class Abort(_OfRequest):
    """Abort a request in its engine, then report `broke` with `was_aborted`; the pool gives it to another worker."""


class Cut(_OfRequest):
    """Close the connection of a request and report nothing more for this epoch: the worker no longer has it."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell the client that its request cannot be answered; `code` is the code of an error."""

    request_id: str
    code: str
    says: str


@dataclass(frozen=True, slots=True)
class _OfWorker:
    worker_id: str
    epoch: int


class Read(_OfWorker):
    """Read a worker's load; answered by `read` or `unanswered`."""


class Sleep(_OfWorker):
    """Flush a worker's cache and release its memory, then its lease; answered by `slept` or `stuck`."""


class Wake(_OfWorker):
    """Take a lease for a worker and wake its engine; answered by `leased`, then `woken`, or by `stuck`."""


class LetGo(_OfWorker):
    """Cancel all calls to a worker's engine, and release its lease; not answered."""


Command = Send | Abort | Cut | Fail | Read | Sleep | Wake | LetGo


class Outbox:
    """Collects commands and events until they are taken. Owned by one pool."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self._events: list[Event] = []
        self._commands: list[Command] = []

    def want(self, command: Command) -> None:
        """Add a command."""
        self._commands.append(command)

    def tell(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)

    def take_commands(self) -> list[Command]:
        """Return the commands since the last call."""
        taken, self._commands = self._commands, []
        return taken

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        taken, self._events = self._events, []
        return taken
