"""Parameters of paths and queries, and the few answers that are not in `wire`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from headgate.jobqueue.job import JobState
from headgate.jobqueue.names import JobId, Name, NameOrEmpty
from headgate.jobqueue.records import Happening
from headgate.jobqueue.wire import MOST_AT_ONCE

_LARGEST = 2**63 - 1

Seq = Annotated[int, Field(ge=-1, le=_LARGEST)]
Limit = Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]

T = TypeVar("T")

Absent: TypeAlias = T | SkipJsonSchema[None]
"""An optional parameter; its schema has no null, which a URL cannot carry."""


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


class PageQuery(Parameters):
    """Where a listing continues, and how long a page is."""

    after: Seq = Field(-1, description="Only entries after this one: the `next` of the previous page.")
    limit: Limit = Field(100, description="Most entries of a page; a page of large entries ends earlier.")


class DeadQuery(PageQuery):
    """Which dead jobs a listing shows."""

    team: Absent[Name] = Field(None, description="Only of this team.")
    task: Absent[Name] = Field(None, description="Only of this task.")


class JobsQuery(DeadQuery):
    """Which jobs a listing shows."""

    state: Absent[JobState] = Field(None, description="Only jobs in this state.")
    pool: Absent[NameOrEmpty] = Field(None, description="Only of this pool.")


class HistoryQuery(PageQuery):
    """Which entries of the history are shown."""

    what: Annotated[list[Happening], BeforeValidator(lambda one: [one] if isinstance(one, str) else one)] = Field(
        default_factory=list, description="Only these kinds; may be repeated."
    )


class RemoveQuery(Parameters):
    """How a server is removed."""

    force: bool = Field(False, description="Remove it even while a job uses it; that job's worker loses it.")


class ReleaseOut(BaseModel):
    """The policy server that is free again."""

    resource_id: str


class RemovedOut(BaseModel):
    """The policy server that was removed."""

    removed: str


class HealthOut(BaseModel):
    """The server's health."""

    status: Literal["healthy", "failing"]
    database: Literal["open", "failing"]
    uptime_s: float
    jobs: dict[JobState, int]
