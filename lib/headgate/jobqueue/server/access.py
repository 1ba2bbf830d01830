"""What a caller's token lets it see and do: for it, jobs of other teams do not exist."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.jobqueue.errors import ForbiddenError, UnknownJobError
from headgate.jobqueue.job import Job, JobSpec
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.names import id_prefix
from headgate.net.authority import Caller
from headgate.net.tokens import Scope


def sees(caller: Caller, job: Job | None) -> bool:
    """Return whether a job exists for the caller."""
    return job is not None and (caller.teams is None or job.spec.team in caller.teams)


def is_hidden(ledger: Ledger, caller: Caller, job_id: str) -> bool:
    """Return whether a job is hidden from the caller; costs nothing for tokens of all teams."""
    return caller.teams is not None and not sees(caller, ledger.job(job_id))


def unknown(job_id: str) -> UnknownJobError:
    """Return the error for a job that does not exist, or is another team's."""
    return UnknownJobError(f"no job is called {job_id!r}")


def narrowed(asked: Iterable[str] | None, allowed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the teams or pools that a caller asks for, less those that its token excludes; None for all."""
    if asked is None:
        return allowed
    return frozenset(asked) if allowed is None else allowed & frozenset(asked)


def usable_pools(caller: Caller) -> frozenset[str] | None:
    """Return the pools whose jobs a caller may get, including the empty one of jobs that need no server."""
    return None if caller.pools is None else caller.pools | {""}


def check_scope(caller: Caller, needed: Scope, *, is_of_all_teams: bool = False) -> None:
    """Check that a caller may do what needs this scope.

    Raises:
        ForbiddenError: its token lacks it, or is bound to teams or pools while the request concerns all of them.
    """
    if not caller.has(needed):
        raise ForbiddenError(f"the token lacks the scope {needed.value!r}")
    if is_of_all_teams and (caller.teams is not None or caller.pools is not None):
        raise ForbiddenError("the token is bound to teams or pools, and this concerns all of them")


def check_submission(caller: Caller, specs: Iterable[JobSpec]) -> None:
    """Check that the caller may submit all of these jobs, whatever other teams have submitted.

    Raises:
        ForbiddenError: its token excludes the team, the pool, the priority or the id of one.
    """
    most = caller.most_priority
    for spec in specs:
        if caller.teams is not None and spec.team not in caller.teams:
            raise ForbiddenError(f"the token is not for team {spec.team!r} (job {spec.job_id!r})")
        if caller.teams is not None and not spec.job_id.startswith(prefix := id_prefix(spec.team)):
            raise ForbiddenError(
                f"job ids must begin with {prefix!r}, as the token is bound to teams (got {spec.job_id!r})",
                next_step="Ids are unique in the whole queue: begin each with its team and a dot.",
            )
        check_pool(caller, spec)
        if most is not None and spec.priority > most:
            raise ForbiddenError(f"priority must be <= {most} for this token (job {spec.job_id!r}: {spec.priority})")


def check_pool(caller: Caller, spec: JobSpec) -> None:
    """Check that the caller may use the servers of a job's pool.

    Raises:
        ForbiddenError: its token excludes the pool.
    """
    if spec.pool and caller.pools is not None and spec.pool not in caller.pools:
        raise ForbiddenError(f"the token is not for pool {spec.pool!r} (job {spec.job_id!r})")


def check_worker(caller: Caller, worker: str) -> None:
    """Check that the caller may act as this worker.

    Raises:
        ForbiddenError: its token is bound to another one.
    """
    if not caller.speaks_for(worker):
        raise ForbiddenError(f"the token is for worker {caller.worker!r} only (got {worker!r})")
