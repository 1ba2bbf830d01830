"""What the pool wants done and has to tell: commands and events, in the order in which they came up.

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
    """Have the engine let go of a request, then report `broke` with `aborted`; the pool gives it to another worker."""


class Cut(_OfRequest):
    """Close the connection of a request and report nothing more of this epoch: the request is with another by now."""


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
    """Flush a worker's cache and release its memory, then give its lease back; answered by `slept` or `stuck`."""


class Wake(_OfWorker):
    """Take a lease for a worker, have it take its memory and answer; answered by `woken` or `stuck`."""


class LetGo(_OfWorker):
    """End whatever is under way for a worker that failed, and give its lease back; not answered."""


Command = Send | Abort | Cut | Fail | Read | Sleep | Wake | LetGo


class Outbox:
    """Collected until they are taken. Owned by one pool."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self._events: list[Event] = []
        self._commands: list[Command] = []

    def want(self, command: Command) -> None:
        """Have something done."""
        self._commands.append(command)

    def tell(self, event: Event) -> None:
        """Tell what happened."""
        self._events.append(event)

    def take_commands(self) -> list[Command]:
        """Return what is to be done, once."""
        taken, self._commands = self._commands, []
        return taken

    def take_events(self) -> list[Event]:
        """Return what happened, once."""
        taken, self._events = self._events, []
        return taken
