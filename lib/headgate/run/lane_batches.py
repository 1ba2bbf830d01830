"""State of the batch lane: requests, groups of requests that wait for a batch, and batches under way."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field, replace

from headgate.core import Model
from headgate.storage import BatchedRequest, BatchRecord


@dataclass(slots=True)
class LaneRequest(BatchedRequest):
    """A request of this process, from when it is first made until its sample is durable."""

    line: bytes = b""
    asked_at: float = 0.0
    until: float = float("inf")
    group: LaneGroup | None = field(default=None, repr=False)


@dataclass(slots=True)
class LaneGroup:
    """Requests of one model that wait for their next batch."""

    model: Model
    requests: dict[str, LaneRequest] = field(default_factory=dict)
    size: int = 0
    since: float = 0.0


@dataclass(slots=True)
class LaneBatch:
    """A batch under way.

    `open` are the unfinished requests, by `custom_id`, and `unwanted` those whose reply is no longer awaited but billed
    all the same; `model` is the model to ask about it, None while none may be asked; `moved_to` is the URL of its model
    where that may not be asked. `outcome` is how it ended at its provider, and why; None until then.
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
        """The model to ask about it; only once that is known."""
        assert self.model is not None, "it is followed as soon as its model is known"
        return self.model

    def give_up(self, request: LaneRequest) -> bool:
        """Stop waiting for a request; return whether it was awaited."""
        if self.open.pop(request.custom_id, None) is None:
            return False
        self.unwanted[request.custom_id] = request
        return True

    def note_model(self, model: Model) -> None:
        """Use the model from now on, at the URL of the submission: no key is sent to a URL that never had it."""
        record = self.record
        if record.base_url in ("", model.base_url):
            self.model = model
        elif record.credential == credential_of(record.key, model):
            self.model = replace(model, base_url=record.base_url)
        elif self.model is None:
            self.moved_to = model.base_url
        self.wake.set()


def leave_group(request: LaneRequest) -> None:
    """Take a request out of the group that it waits in; does nothing if it waits in none."""
    if (group := request.group) is not None:
        del group.requests[request.custom_id]
        group.size -= len(request.line) + 1
        request.group, request.line = None, b""


def credential_of(key: str, model: Model) -> str:
    """Return a fingerprint by which to recognise a model's API key, different for each batch."""
    return hashlib.blake2b(model.api_key.reveal().encode(), key=key.encode(), digest_size=16).hexdigest()
