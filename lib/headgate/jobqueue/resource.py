"""A resource: one policy server, which serves one job at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from headgate.core.addresses import ip_address_of


class ResourceState(StrEnum):
    """Whether a server is handed out: `open` ones are, `draining` ones finish a job, `down` ones fail their checks."""

    OPEN = "open"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """A policy server as a pool names it.

    Attributes:
        pool: jobs of this pool may get it.
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

    @property
    def address(self) -> tuple[str, int]:
        """The server's identity: equal for every spelling of its host."""
        return canonical_host(self.host), self.port

    def serves(self, task: str) -> bool:
        """Return whether a job of `task` may use it."""
        if task in self.not_compatible_task:
            return False
        return not self.compatible_task or task in self.compatible_task


@dataclass(frozen=True, slots=True)
class Resource:
    """A policy server in the ledger: one for each address, whichever pools name it.

    Invariants: `lease_id`, `job_id` and `worker` are all set or all empty; `epoch` grows with every reservation; all
    of its specs have one address, and a pool of their own each.

    Attributes:
        spec: as the first pool named it; its id has this pool's name.
        index: its number in its pool, from 0; never used again for another server of the pool.
        state: whether it is handed out.
        epoch: reservations so far; the fencing token of the running one.
        lease_id: of the running reservation, else empty.
        job_id: the job that uses it, else empty.
        worker: the worker that runs that job, else empty.
        lease_s: seconds without a renewal after which the reservation is over.
        reserved_at: wall time of the running reservation, else 0.
        note: why it is down or draining, else empty.
        also: as further pools name it, each with its own rules.
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
    also: tuple[ResourceSpec, ...] = ()

    @property
    def resource_id(self) -> str:
        """Its name: the pool and its number there."""
        return f"{self.spec.pool}/{self.index}"

    @property
    def is_free(self) -> bool:
        """True while no job uses it."""
        return not self.lease_id

    @property
    def use(self) -> str:
        """What it does: `busy` while a job uses it, else `free`, `draining` or `down`."""
        if not self.is_free:
            return "busy"
        return "free" if self.state is ResourceState.OPEN else self.state.value

    @property
    def specs(self) -> tuple[ResourceSpec, ...]:
        """The server as each of its pools names it."""
        return (self.spec, *self.also)

    def spec_in(self, pool: str) -> ResourceSpec | None:
        """Return the server as a pool names it, or None when it does not."""
        return next((spec for spec in self.specs if spec.pool == pool), None)

    def serves(self, pool: str, task: str) -> bool:
        """Return whether a job of a pool and task may use it."""
        spec = self.spec_in(pool)
        return spec is not None and spec.serves(task)

    def renamed(self, spec: ResourceSpec) -> Resource:
        """Return the server with `spec` added, or put in place of the earlier spec of the same pool."""
        specs = {one.pool: one for one in self.specs} | {spec.pool: spec}
        first, *also = specs.values()
        return replace(self, spec=first, also=tuple(also))


def canonical_host(host: str) -> str:
    """Return one spelling for all that certainly mean the same machine.

    Case, a trailing dot and brackets mean nothing, an IP address has many forms, and `localhost` is the loopback
    address of either family. Names are not resolved: what one means can change, and depends on the resolver.
    """
    name = host.strip("[]").removesuffix(".").lower()
    address = ip_address_of(name)
    if address is None:
        return name
    return "localhost" if str(address) in {"127.0.0.1", "::1"} else str(address)
