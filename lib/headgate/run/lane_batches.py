"""What the batch lane holds: requests, those that wait for a batch together, and batches under way."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field, replace

from headgate.core import Model
from headgate.storage import BatchedRequest, BatchRecord


@dataclass(slots=True)
class LaneRequest(BatchedRequest):
    """A request of this process, from the first time it is asked until its sample is durable."""

    line: bytes = b""
    asked_at: float = 0.0
    until: float = float("inf")
    group: LaneGroup | None = field(default=None, repr=False)


@dataclass(slots=True)
class LaneGroup:
    """Requests of one model that wait for their batch."""

    model: Model
    requests: dict[str, LaneRequest] = field(default_factory=dict)
    size: int = 0
    since: float = 0.0


@dataclass(slots=True)
class LaneBatch:
    """A batch under way.

    `open` are the requests that have no end yet, by `custom_id`, and `unwanted` those of which nobody waits for a reply
    any more, which is billed all the same; `model` is asked about it, None until one may be,
    and `moved_to` where that is which may not. `outcome` is how it ended at its provider, and why; None until then.
    """

    record: BatchRecord
    model: Model | None = None
    open: dict[str, LaneRequest] = field(default_factory=dict)
    unwanted: dict[str, LaneRequest] = field(default_factory=dict)
    moved_to: str = ""
    data: bytes = b""
    done: int = 0
    state: str = ""
    answered: int = 0
    left: int = 0
    ignored: int = 0
    tokens: tuple[int, int] = (0, 0)
    outcome: tuple[str, str] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def asked(self) -> Model:
        """Who is asked about it."""
        assert self.model is not None, "it is followed as soon as its model is known"
        return self.model

    def give_up(self, request: LaneRequest) -> bool:
        """Wait for a request no longer; return whether it was waited for."""
        if self.open.pop(request.custom_id, None) is None:
            return False
        self.unwanted[request.custom_id] = request
        return True

    def note_model(self, model: Model) -> None:
        """Ask the model from now on, where the batch was submitted: no key is told to a place that never had it."""
        record = self.record
        if record.base_url in ("", model.base_url):
            self.model = model
        elif record.credential == credential_of(record.key, model):
            self.model = replace(model, base_url=record.base_url)
        elif self.model is None:
            self.moved_to = model.base_url
        self.wake.set()


def leave_group(request: LaneRequest) -> None:
    """Have a request wait for no batch; nothing where it is in one."""
    if (group := request.group) is not None:
        del group.requests[request.custom_id]
        group.size -= len(request.line) + 1
        request.group, request.line = None, b""


def credential_of(key: str, model: Model) -> str:
    """Return by what the key of a model is known again: another text for each batch."""
    return hashlib.blake2b(model.api_key.reveal().encode(), key=key.encode(), digest_size=16).hexdigest()
