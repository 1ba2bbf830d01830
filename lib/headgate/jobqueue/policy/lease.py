"""The fencing of a policy server: a connection says under which reservation it comes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.jobqueue.policy.errors import MalformedMessageError

LEASE_HEADER: Final = "X-Headgate-Lease"
EPOCH_HEADER: Final = "X-Headgate-Epoch"

_LEASE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")
_EPOCH: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class PolicyLease:
    """A reservation of a policy server, as the job queue gave it.

    Attributes:
        lease_id: unique to the reservation.
        epoch: grows by one with every reservation of this server, so the highest is the one that holds it.

    Raises:
        MalformedMessageError: if they cannot stand in a header.
    """

    lease_id: str
    epoch: int

    def __post_init__(self) -> None:
        if _LEASE_ID.fullmatch(self.lease_id) is None:
            raise MalformedMessageError(
                f"a lease id must be 1 to 200 letters, digits or ._:- (got {self.lease_id!r:.80})"
            )
        if not 0 <= self.epoch < 10**18:
            raise MalformedMessageError(f"an epoch must be >= 0 and have at most 18 digits (got {self.epoch})")

    @property
    def headers(self) -> dict[str, str]:
        """The headers that say it when a connection is opened."""
        return {LEASE_HEADER: self.lease_id, EPOCH_HEADER: str(self.epoch)}


def read_lease(headers: Mapping[str, str]) -> PolicyLease | None:
    """Return the lease that a connection comes under, None for a client that knows of none.

    Raises:
        MalformedMessageError: if the headers are there and wrong, or only one of them is.
    """
    lease_id, epoch = headers.get(LEASE_HEADER), headers.get(EPOCH_HEADER)
    if lease_id is None and epoch is None:
        return None
    if lease_id is None or epoch is None or _EPOCH.fullmatch(epoch) is None:
        raise MalformedMessageError(
            f"{LEASE_HEADER} and {EPOCH_HEADER} must come together, the epoch a number "
            f"(got {lease_id!r:.80} and {epoch!r:.80})"
        )
    return PolicyLease(lease_id, int(epoch))
