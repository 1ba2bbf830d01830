"""A resource: one policy server, which serves one job at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class ResourceState(StrEnum):
    """Whether a server is handed out: `open` ones are; `draining` ones end their job; `down` ones fail their checks."""

    OPEN = "open"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """A policy server as it is registered.

    Attributes:
        pool: whose server it is: jobs of this pool may get it.
        host: name or address.
        port: TCP port.
        compatible_task: tasks that it serves; empty means every one.
        not_compatible_task: tasks that it does not serve.
        body: the whole registered object as JSON text, passed on to the worker as it came.
    """

    pool: str
    host: str
    port: int
    compatible_task: frozenset[str] = field(default_factory=frozenset)
    not_compatible_task: frozenset[str] = field(default_factory=frozenset)
    body: str = "{}"

    def serves(self, task: str) -> bool:
        """Return whether a job of `task` may use it."""
        if task in self.not_compatible_task:
            return False
        return not self.compatible_task or task in self.compatible_task


@dataclass(frozen=True, slots=True)
class Resource:
    """A policy server in the ledger.

    Invariant: `lease_id`, `job_id` and `worker` are all set or all empty; `epoch` grows by one with every reservation.

    Attributes:
        spec: what was registered.
        index: its number in its pool, from 0; never used again for another server of the pool.
        state: whether it is handed out.
        epoch: reservations so far; the fencing token of the running one.
        lease_id: of the running reservation, else empty.
        job_id: the job that uses it, else empty.
        worker: who runs that job, else empty.
        lease_s: seconds without a renewal after which the reservation is over.
        reserved_at: wall time of the running reservation, else 0.
        note: why it is down or draining, else empty.
    """

    spec: ResourceSpec
    index: int
    state: ResourceState = ResourceState.OPEN
    epoch: int = 0
    lease_id: str = ""
    job_id: str = ""
    worker: str = ""
    lease_s: float = 0.0
    reserved_at: float = 0.0
    note: str = ""

    @property
    def resource_id(self) -> str:
        """Its name: the pool and its number there."""
        return f"{self.spec.pool}/{self.index}"

    @property
    def is_free(self) -> bool:
        """True while no job uses it."""
        return not self.lease_id
