"""What the pool wants done and has to tell: commands and events, in the order in which they came up.

Commands about workers are answered by a report with the same worker and epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events import Event


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to a worker; answered by `begun`, then `ended` or `broke`, with this epoch."""

    request_id: str
    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Have the engine let go of a request, then report `broke` with `aborted`; the pool gives it to another worker."""

    request_id: str
    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection of a request and report nothing more of this epoch: the request is with another by now."""

    request_id: str
    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell the client that its request cannot be answered; `code` is the code of an error."""

    request_id: str
    code: str
    says: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read a worker's load; answered by `read` or `unanswered`."""

    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Sleep:
    """Flush a worker's cache and release its memory, then give its lease back; answered by `slept` or `stuck`."""

    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Take a lease for a worker, have it take its memory and answer; answered by `woken` or `stuck`."""

    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LetGo:
    """End whatever is under way for a worker that failed, and give its lease back; not answered."""

    worker_id: str
    epoch: int


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
