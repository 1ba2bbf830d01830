"""What the task runner needs of placement: leases that are waited for, may be lost, and are given back once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from headgate.orchestration.placement.demand import Demand


class HeldLease(Protocol):
    """A place in line, and the place to run in once it is held; after a loss the same place in line again."""

    @property
    def request_id(self) -> str:
        """Names it in the ledger through all of its holds."""
        ...

    @property
    def lease_id(self) -> str:
        """Names the present hold in events and in `headgate placement status`."""
        ...

    @property
    def place(self) -> str:
        """Name of the placement group."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the place has to be left: it was preempted, or its node died."""
        ...

    @property
    def why_lost(self) -> str:
        """Why it has to be left; empty while it has not."""
        ...

    def wait(self, unless: Callable[[], bool]) -> bool:
        """Return True once the place is held, after a loss once it is held anew; False once `unless` holds.

        Raises:
            HeadgateError: it never will be held.
        """
        ...

    def wake(self) -> None:
        """Have `wait` look at its `unless` now; called from any thread."""
        ...

    def strategy(self) -> Any:
        """Return Ray's scheduling strategy for a task in the place."""
        ...


class Leases(Protocol):
    """Gives leases. Used from many threads."""

    def take(self, demand: Demand, name: str, *, on_lost: Callable[[], None]) -> AbstractContextManager[HeldLease]:
        """Return a context that stands in line, and at its end gives back exactly once what is held or waited for.

        Args:
            demand: what is asked for.
            name: of the task run, for people.
            on_lost: called from any thread when the place has to be left.

        Raises:
            HeadgateError: on entering, when the demand can never be met or placement does not answer.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; legal twice."""
        ...
