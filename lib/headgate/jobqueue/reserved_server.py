"""The policy server reserved for a job, and the environment variables that name it to the job's command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import JobQueueError

if TYPE_CHECKING:
    from headgate.jobqueue.wire import ReservationOut  # reading the variables must not import pydantic

RESOURCE_VARIABLES: Final = (
    "HEADGATE_RESOURCE_HOST", "HEADGATE_RESOURCE_PORT", "HEADGATE_RESOURCE_INDEX", "HEADGATE_RESOURCE_ID",
    "HEADGATE_RESOURCE_LEASE", "HEADGATE_RESOURCE_EPOCH",
)  # fmt: skip
"""Environment variables that name a server, in the order of the fields of `ReservedServer`."""


@dataclass(frozen=True, slots=True)
class ReservedServer:
    """A policy server.

    Attributes:
        host: name or address.
        index: its number in its pool.
        resource_id: pool and number.
        epoch: of the reservation; servers that know Headgate refuse one lower than the highest they have seen.
        resource: the whole object that was registered.
    """

    host: str
    port: int
    index: int
    resource_id: str = ""
    lease_id: str = ""
    epoch: int = 0
    resource: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, reservation: ReservationOut) -> Self:
        """Return the server of a reservation.

        Raises:
            JobQueueError: if it was registered without host and port.
        """
        resource = reservation.resource
        host, port = resource.get("host"), resource.get("port")
        if not isinstance(host, str) or isinstance(port, bool) or not isinstance(port, int):
            raise JobQueueError(
                f"policy server {reservation.resource_id!r} is registered without host and port",
                next_step="Register it again, or remove it with `headgate jobqueue remove`.",
            )
        return cls(
            host, port, reservation.index, reservation.resource_id, reservation.lease_id, reservation.epoch, resource
        )

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that name it."""
        values = (self.host, self.port, self.index, self.resource_id, self.lease_id, self.epoch)
        return dict(zip(RESOURCE_VARIABLES, map(str, values), strict=True))

    @property
    def key(self) -> tuple[str, int]:
        """The identity of this reservation."""
        return (self.lease_id, self.epoch)


def server_in(environ: Mapping[str, str]) -> ReservedServer | None:
    """Return the policy server that an environment names, None when it names none.

    Raises:
        InvalidInputError: if its index or its epoch is not a number.
    """
    host, port, index, resource_id, lease_id, epoch = (environ.get(name, "") for name in RESOURCE_VARIABLES)
    if not host or not port.isdecimal():
        return None
    for name, text in ((RESOURCE_VARIABLES[2], index), (RESOURCE_VARIABLES[5], epoch)):
        if text and not (text.isascii() and text.isdigit()):
            raise InvalidInputError(f"{name} must be a number (got {text!r:.80})")
    return ReservedServer(host, int(port), int(index or 0), resource_id, lease_id, int(epoch or 0))
