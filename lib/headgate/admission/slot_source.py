"""The seam between request admission and whatever bounds a provider across processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headgate.admission.gate import RequestAdmission
from headgate.admission.keys import ProviderModel
from headgate.core.events import Emit

Backlog = Callable[[str], int]
"""Returns how many requests would be made of a provider at once if it had more slots."""


class SlotSource(Protocol):
    """What grants slots to the request admission of this process, e.g. Prefect's global concurrency limits."""

    def follow(self, name: ProviderModel, cap: int) -> int:
        """Return the cap of a model here, `cap` or less, and bound its provider from now on if anything does.

        Called before the model is registered, so that no request goes past the bound.
        """
        ...

    def serving(
        self, admission: RequestAdmission, emit: Emit, backlog: Backlog | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Give a context in which the caps of providers follow the slots; everything is given back when it ends.

        `backlog` tells of demand that has made no request yet, as nothing is started at a provider without slots.
        """
        ...
