"""Parameters of paths and queries, and the few answers that `wire` leaves to the server."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headgate.jobqueue.job import JobState
from headgate.jobqueue.names import JobId, Name, NameOrEmpty
from headgate.jobqueue.port import Happening
from headgate.jobqueue.wire import MOST_AT_ONCE

_LARGEST = 2**63 - 1

Seq = Annotated[int, Field(ge=-1, le=_LARGEST)]
Limit = Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]


class Parameters(BaseModel):
    """Parameters of a request; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobPath(Parameters):
    """A job."""

    job_id: JobId = Field(description="The job's id.", examples=["17"])


class ResourcePath(Parameters):
    """A policy server."""

    pool: Name = Field(description="The server's pool.", examples=["team_a"])
    index: int = Field(ge=0, le=2**31 - 1, description="Its number in the pool.", examples=[0])

    @property
    def resource_id(self) -> str:
        """Its id."""
        return f"{self.pool}/{self.index}"


class JobsQuery(Parameters):
    """Which jobs a listing shows."""

    state: JobState | None = Field(None, description="Only jobs in it.")
    team: Name | None = Field(None, description="Only of this team.")
    task: Name | None = Field(None, description="Only of this task.")
    pool: NameOrEmpty | None = Field(None, description="Only of this pool.")
    after: Seq = Field(-1, description="Only entries after this `seq`: the `next` of the previous page.")
    limit: Limit = Field(100, description="Longest page; one of large jobs ends earlier.")


class DeadQuery(Parameters):
    """Which dead jobs a listing shows."""

    team: Name | None = Field(None, description="Only of this team.")
    task: Name | None = Field(None, description="Only of this task.")
    after: Seq = Field(-1, description="Only entries after this `seq`: the `next` of the previous page.")
    limit: Limit = Field(100, description="At most so many.")


class PageQuery(Parameters):
    """Where a listing goes on."""

    after: Seq = Field(-1, description="Only entries after this one: the `next` of the previous page.")
    limit: Limit = Field(100, description="At most so many.")


class HistoryQuery(PageQuery):
    """Which entries of the history are shown."""

    what: list[Happening] = Field(default_factory=list, description="Only these kinds; may be repeated.")


class RemoveQuery(Parameters):
    """How a server is removed."""

    force: bool = Field(False, description="Also when a job uses it, whose worker then loses it.")


class ReleaseOut(BaseModel):
    """The policy server that is free again."""

    resource_id: str


class RemovedOut(BaseModel):
    """The policy server that was taken out."""

    removed: str


class HealthOut(BaseModel):
    """Whether the server works."""

    status: Literal["healthy", "failing"]
    database: Literal["open", "failing"]
    uptime_s: float
    jobs: dict[JobState, int]
