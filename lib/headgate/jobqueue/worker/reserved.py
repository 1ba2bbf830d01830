"""A policy server that a job has for itself, as its worker hands it on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from headgate.jobqueue.errors import JobQueueError
from headgate.jobqueue.wire import ReservationOut


@dataclass(frozen=True, slots=True)
class ReservedServer:
    """A policy server.

    Attributes:
        host: name or address.
        port: TCP port.
        index: its number in its pool.
        resource_id: pool and number.
        lease_id: of the reservation.
        epoch: of the reservation: servers that know Headgate refuse a lower one than they have seen.
        resource: everything that was registered of it.
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
            JobQueueError: if what was registered of it has no host and port.
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
    def key(self) -> tuple[str, int]:
        """What tells this reservation from every other one."""
        return (self.lease_id, self.epoch)
