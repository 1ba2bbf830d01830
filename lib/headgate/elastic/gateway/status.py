"""The status of a gateway: the pool, and the admission in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from headgate.elastic.service import PoolStatus


@dataclass(frozen=True, slots=True)
class AdmissionView:
    """The admission in front of a pool.

    Attributes:
        limit: most requests in the pool at once: what its workers take if `max_workers` are awake.
        in_flight: requests in the pool.
        waiting: requests that wait for admission; groups take turns by weight.
        most_waiting: most requests that may wait; further ones are refused.
    """

    limit: int
    in_flight: int
    waiting: int
    most_waiting: int


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """A gateway at one moment.

    Attributes:
        pool: the pool behind it.
        admission: the admission in front of the pool.
        is_draining: whether it refuses new requests because it is being stopped.
    """

    pool: PoolStatus
    admission: AdmissionView
    is_draining: bool

    def as_json(self) -> bytes:
        """Return it as JSON, which `from_json` reads."""
        return _ADAPTER.dump_json(self)

    @staticmethod
    def from_json(body: bytes) -> GatewayStatus:
        """Return what `as_json` wrote, by a gateway of this version or of a later one.

        Raises:
            pydantic.ValidationError: the body is not such a status.
        """
        return _ADAPTER.validate_json(body)


_ADAPTER: Final = TypeAdapter(GatewayStatus)
