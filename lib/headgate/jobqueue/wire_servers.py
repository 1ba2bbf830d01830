"""The bodies of `/v1` about policy servers, and the overview of the queue."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headgate.jobqueue.job import JobState
from headgate.jobqueue.names import Name, checked_object, object_text
from headgate.jobqueue.resource import Resource, ResourceSpec, ResourceState
from headgate.jobqueue.wire import MOST_AT_ONCE, Body

TaskNames = str | list[Name]


class ResourceIn(BaseModel):
    """A policy server to register; other keys are kept and passed on to workers."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    pool: Name
    host: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^(wss://)?[A-Za-z0-9._:\[\]-]+$",
        examples=["server1.example.com"],
        description="Name or address; with `wss://` before it the server speaks TLS.",
    )
    port: int = Field(ge=1, le=65_535, examples=[8080])
    compatible_task: TaskNames | None = None
    not_compatible_task: TaskNames | None = None

    @model_validator(mode="after")
    def _can_be_stored(self) -> Self:
        checked_object(self._body)
        return self

    @property
    def _body(self) -> dict[str, Any]:
        empty = {"compatible_task"} if self.compatible_task == [] else set()  # as if left out: every task
        return self.model_dump(exclude={"pool", *empty}, exclude_unset=True)

    @property
    def spec(self) -> ResourceSpec:
        """The same as a value of the ledger."""
        return ResourceSpec(
            self.pool, self.host, self.port, _tasks(self.compatible_task), _tasks(self.not_compatible_task),
            object_text(self._body),
        )  # fmt: skip

    @classmethod
    def of(cls, spec: ResourceSpec) -> Self:
        """Return the body that registers a server."""
        return cls.model_validate({**json.loads(spec.body), "pool": spec.pool, "host": spec.host, "port": spec.port})


class ResourcesIn(Body):
    """Policy servers to register, all or none.

    Host and port identify a server. One that is registered already gets these rules for the pool named here, and keeps
    those of its other pools.
    """

    resources: list[ResourceIn] = Field(min_length=1, max_length=MOST_AT_ONCE)


class ResourceOut(BaseModel):
    """A policy server in its current state."""

    resource_id: str
    pool: str
    index: int
    host: str
    port: int
    state: ResourceState
    note: str
    epoch: int
    job_id: str | None
    worker: str | None
    reserved_at: float | None
    resource: dict[str, Any] = Field(description="As its pool registered it.")
    also: list[dict[str, Any]] = Field([], description="As further pools registered it, each with its `pool`.")

    @property
    def pools(self) -> list[str]:
        """The pools that name it."""
        return [self.pool, *(named["pool"] for named in self.also)]

    @classmethod
    def of(cls, resource: Resource, pools: Container[str] | None = None) -> ResourceOut:
        """Return a server of the ledger as a body, as these of its pools (None: all) name it."""
        spec, *others = (one for one in resource.specs if pools is None or one.pool in pools)
        return cls.model_construct(
            resource_id=resource.resource_id, pool=spec.pool, index=resource.index, host=spec.host, port=spec.port,
            state=resource.state, note=resource.note, epoch=resource.epoch, job_id=resource.job_id or None,
            worker=resource.worker or None, reserved_at=resource.reserved_at or None,
            resource=json.loads(spec.body), also=[{**json.loads(one.body), "pool": one.pool} for one in others],
        )  # fmt: skip


class ResourcesOut(BaseModel):
    """Policy servers by pool and index."""

    resources: list[ResourceOut]


class LaneOut(BaseModel):
    """Jobs of one team, pool and task by state."""

    team: str
    pool: str
    task: str
    pending: int
    in_progress: int
    done: int
    dead: int
    is_served: bool = Field(description="False: no open server serves it, so its jobs are not handed out.")


class PoolOut(BaseModel):
    """Policy servers of one pool by use, and the jobs that wait for one."""

    pool: str
    servers: int
    busy: int
    free: int
    draining: int
    down: int
    waiting: int


class StatisticsOut(BaseModel):
    """The queue at a glance."""

    jobs: dict[JobState, int]
    withdrawn: int = Field(0, description="How many of the dead jobs somebody withdrew.")
    workers: int
    waiting_claims: int
    pools: list[PoolOut]
    lanes: list[LaneOut]


def _tasks(names: TaskNames | None) -> frozenset[str]:
    if names is None:
        return frozenset()
    return frozenset((names,) if isinstance(names, str) else names)
