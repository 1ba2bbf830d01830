"""What a caller's token lets it see and do: jobs of other teams are, to it, not there."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.jobqueue.authority import Caller
from headgate.jobqueue.errors import ForbiddenError, UnknownJobError
from headgate.jobqueue.job import Job, JobSpec
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.tokens import Scope


def sees(caller: Caller, job: Job | None) -> bool:
    """Return whether a job exists for the caller."""
    return job is not None and (caller.teams is None or job.spec.team in caller.teams)


def is_hidden(ledger: Ledger, caller: Caller, job_id: str) -> bool:
    """Return whether the caller may not know of a job; costs nothing for tokens of every team."""
    return caller.teams is not None and not sees(caller, ledger.job(job_id))


def unknown(job_id: str) -> UnknownJobError:
    """Return the error for a job that is not there, or is another team's."""
    return UnknownJobError(f"no job is called {job_id!r}")


def narrowed(asked: Iterable[str] | None, caller: Caller) -> frozenset[str] | None:
    """Return the teams that a caller asks for, less those that its token excludes; None for all."""
    if asked is None:
        return caller.teams
    return frozenset(asked) if caller.teams is None else caller.teams & frozenset(asked)


def check_scope(caller: Caller, needed: Scope, *, is_of_all_teams: bool = False) -> None:
    """Return when a caller may do what needs this scope.

    Raises:
        ForbiddenError: its token lacks it, or is bound to teams while all are concerned.
    """
    if not caller.has(needed):
        raise ForbiddenError(f"the token lacks the scope {needed.value!r}")
    if is_of_all_teams and caller.teams is not None:
        raise ForbiddenError("the token is bound to teams, and this concerns all of them")


def check_teams(caller: Caller, specs: Iterable[JobSpec]) -> None:
    """Return when the caller may submit all of these jobs.

    Raises:
        ForbiddenError: its token excludes the team of one.
    """
    if caller.teams is None:
        return
    for spec in specs:
        if spec.team not in caller.teams:
            raise ForbiddenError(f"the token is not for team {spec.team!r} (job {spec.job_id!r})")


def check_worker(caller: Caller, worker: str) -> None:
    """Return when the caller may act as this worker.

    Raises:
        ForbiddenError: its token is bound to another one.
    """
    if not caller.speaks_for(worker):
        raise ForbiddenError(f"the token is for worker {caller.worker!r} only (got {worker!r})")
