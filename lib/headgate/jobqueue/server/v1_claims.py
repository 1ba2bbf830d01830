"""Claims of `/v1`: workers claim jobs, renew the claims, and end them."""

from __future__ import annotations

import logging
from typing import Final, Never

from headgate.core.errors import some_of
from headgate.jobqueue.errors import StaleLeaseError, TokenEndedError
from headgate.jobqueue.job import Job
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.names import object_text
from headgate.jobqueue.outcomes import (
    ClaimRequest,
    CompleteOutcome,
    Completion,
    Ended,
    EndOutcome,
    Instant,
    LeaseRef,
    Renewed,
    RenewOutcome,
    Repeated,
    Stale,
    Unknown,
)
from headgate.jobqueue.server.access import check_worker, is_hidden, narrowed, unknown, usable_pools
from headgate.jobqueue.server.answers import Answer, ok, problem_of
from headgate.jobqueue.server.documents import JobPath
from headgate.jobqueue.server.route import Call, Key, audit
from headgate.jobqueue.wire import (
    ClaimedJob,
    ClaimIn,
    ClaimOut,
    CompleteIn,
    CompletionOut,
    CompletionsIn,
    CompletionsOut,
    EndOut,
    FailIn,
    GiveBackIn,
    RenewalOut,
    RenewIn,
    RenewOut,
    ReservationOut,
)
from headgate.jobqueue.writer import Operation

_log = logging.getLogger("headgate.jobqueue")

_NOTHING: Final = ok(ClaimOut(jobs=[]))


async def claim(call: Call, body: ClaimIn) -> Answer[ClaimOut]:
    """Hand out jobs; with `wait_s`, as soon as there are any."""
    check_worker(call.caller, body.worker)
    request = ClaimRequest(
        body.worker,
        body.count,
        body.lease_s,
        narrowed(body.teams, call.caller.teams),
        None if body.tasks is None else frozenset(body.tasks),
        narrowed(body.pools, usable_pools(call.caller)),
        "" if call.key is None else f"{call.key.name}\0{call.key.fingerprint}",
    )
    if call.key is not None:
        return await _claim_once(call, call.key, request, body.wait_s)
    jobs = await _claimed(call, request, body.wait_s)
    _note(call, jobs)
    return _answer_of(jobs)


async def _claimed(call: Call, request: ClaimRequest, wait_s: float) -> tuple[Job, ...]:
    if not wait_s:
        return await call.service.writer.do(lambda ledger, at: ledger.claims.claim(request, at))
    standing = call.service.writer.wait_for(lambda ledger, at: ledger.claim_or_wait(request, at), wait_s)
    jobs = await call.service.long_polls.stand(standing, call.request)
    if not isinstance(jobs, tuple):
        return ()
    try:
        await call.service.check_still_let_in(call.request)
    except TokenEndedError:
        await call.service.writer.do(lambda ledger, at: _take_back(ledger, jobs, at, "the worker's token had ended"))
        raise
    return jobs


async def _claim_once(call: Call, key: Key, request: ClaimRequest, wait_s: float) -> Answer[ClaimOut]:
    claimed: tuple[Job, ...] = ()

    def at_once(ledger: Ledger, at: Instant) -> Answer[ClaimOut] | None:
        nonlocal claimed
        if (known := key.replay(ledger)) is not None:
            return known
        # A request that waited got jobs in one transaction; its answer is stored only in the next one.
        given = ledger.claims.again(request, at)
        claimed = () if given else ledger.claims.claim(request, at)
        if given or claimed or not wait_s:
            return _remembered(key, ledger, given or claimed, at)
        return None

    def afterwards(ledger: Ledger, at: Instant) -> Answer[ClaimOut]:
        nonlocal claimed
        if (known := key.replay(ledger)) is not None:
            # The same request was sent twice, and both waited.
            _take_back(ledger, claimed, at, "the same request had been answered before")
            claimed = ()
            return known
        return _remembered(key, ledger, claimed, at)

    answer = await call.service.writer.do(at_once)
    if answer is None:
        claimed = await _claimed(call, request, wait_s)
        answer = await call.service.writer.do(afterwards)
    _note(call, claimed)
    return answer


def _remembered(key: Key, ledger: Ledger, jobs: tuple[Job, ...], at: Instant) -> Answer[ClaimOut]:
    # Empty claims change nothing; waiting workers would fill the database with them.
    return key.remember(ledger, _answer_of(jobs), at) if jobs else _NOTHING


def _answer_of(jobs: tuple[Job, ...]) -> Answer[ClaimOut]:
    return ok(ClaimOut.model_construct(jobs=[ClaimedJob.of(job) for job in jobs])) if jobs else _NOTHING


def _note(call: Call, jobs: tuple[Job, ...]) -> None:
    if not jobs:
        return
    call.service.metrics.claimed(len(jobs))
    for job in jobs:
        _log.info("Job %s assigned to %s (attempt %s)", job.job_id, job.worker, job.epoch)
    audit(call.caller, f"claimed {named([job.job_id for job in jobs])} as worker {jobs[0].worker!r}")


def named(job_ids: list[str]) -> str:
    """Return some of the jobs' ids for a log line, and how many more there are."""
    return f"job {some_of(list(map(repr, job_ids)), 5)}"


def _take_back(ledger: Ledger, jobs: tuple[Job, ...], at: Instant, reason: str) -> None:
    for job in jobs:
        ledger.claims.take_back(job, at, reason)


async def renew(call: Call, body: RenewIn) -> Answer[RenewOut]:
    """Renew claims, and the servers that they hold, for another lease period."""
    refs = [lease.ref for lease in body.leases]
    caller = call.caller
    outcomes = await call.service.writer.do(
        lambda ledger, at: [
            Unknown(ref.job_id) if is_hidden(ledger, caller, ref.job_id) else ledger.claims.renew(ref, at)
            for ref in refs
        ]
    )
    return ok(RenewOut.model_construct(renewals=[_renewal(outcome) for outcome in outcomes]))


def _renewal(outcome: RenewOutcome) -> RenewalOut:
    match outcome:
        case Renewed(job, resource):
            spec = None if resource is None else resource.spec_in(job.spec.pool)
            reservation = None if resource is None or spec is None else ReservationOut.of(resource, spec)
            return RenewalOut.model_construct(job_id=job.job_id, status="renewed", reservation=reservation)
        case Stale(job_id, reason):
            return RenewalOut.model_construct(job_id=job_id, status="lost", reason=reason)
        case Unknown(job_id):
            return RenewalOut.model_construct(job_id=job_id, status="unknown", reason="no job has this id")


async def complete(call: Call, path: JobPath, body: CompleteIn) -> Answer[CompletionOut]:
    """Accept a result, once."""
    ref = LeaseRef(path.job_id, body.lease_id, body.epoch)
    completion = _completion(body)
    changed = await call.change(
        lambda ledger, at: _complete(ledger, call, ref, completion, at),
        lambda found: refused(found) if isinstance(found, Stale | Unknown) else ok(_completion_out(found)),
    )
    if changed.outcome is not None:
        _note_completion(call, ref, changed.outcome)
        status = _completion_out(changed.outcome).status
        audit(call.caller, f"completed job {ref.job_id!r} epoch {ref.epoch}: {status}")
    return changed.answer


async def complete_many(call: Call, body: CompletionsIn) -> Answer[CompletionsOut]:
    """Accept many results; each is accepted or refused on its own."""
    results = await call.service.large_bodies.each(
        body.completions, lambda one: (LeaseRef(one.job_id, one.lease_id, one.epoch), _completion(one))
    )
    changed = await call.change(
        lambda ledger, at: [_complete(ledger, call, ref, completion, at) for ref, completion in results],
        lambda found: ok(CompletionsOut.model_construct(completions=list(map(_completion_out, found)))),
    )
    if changed.outcome is not None:
        for (ref, _), outcome in zip(results, changed.outcome, strict=True):
            _note_completion(call, ref, outcome)
        done = sum(isinstance(outcome, Ended) for outcome in changed.outcome)
        audit(call.caller, f"completed {done} of {named([ref.job_id for ref, _ in results])}")
    return changed.answer


def _complete(ledger: Ledger, call: Call, ref: LeaseRef, completion: Completion, at: Instant) -> CompleteOutcome:
    if is_hidden(ledger, call.caller, ref.job_id):
        return Unknown(ref.job_id)
    return ledger.claims.complete(ref, completion, at)


def _completion(body: CompleteIn) -> Completion:
    return Completion(object_text(body.result), body.result_ref, body.checksum)


def _completion_out(outcome: CompleteOutcome) -> CompletionOut:
    match outcome:
        case Ended(job):
            return CompletionOut.model_construct(job_id=job.job_id, status="done")
        case Repeated(job):
            return CompletionOut.model_construct(job_id=job.job_id, status="repeated")
        case Stale(job_id, reason):
            return CompletionOut.model_construct(job_id=job_id, status="stale", reason=reason)
        case Unknown(job_id):
            return CompletionOut.model_construct(job_id=job_id, status="unknown", reason="no job has this id")


def _note_completion(call: Call, ref: LeaseRef, outcome: CompleteOutcome) -> None:
    call.service.metrics.ended(_completion_out(outcome).status)
    if isinstance(outcome, Ended):
        _log.info("Job %s finished by %s", ref.job_id, outcome.job.worker)


async def fail(call: Call, path: JobPath, body: FailIn) -> Answer[EndOut]:
    """End a claim whose work failed."""
    ref = LeaseRef(path.job_id, body.lease_id, body.epoch)
    return await _end(call, ref, "failed", lambda ledger, at: ledger.claims.fail(ref, body.error, at, retry=body.retry))


async def give_back(call: Call, path: JobPath, body: GiveBackIn) -> Answer[EndOut]:
    """End a claim without a result and without counting a failure."""
    ref = LeaseRef(path.job_id, body.lease_id, body.epoch)
    return await _end(call, ref, "given_back", lambda ledger, at: ledger.claims.give_back(ref, at, body.reason))


async def _end(call: Call, ref: LeaseRef, how: str, end: Operation[EndOutcome]) -> Answer[EndOut]:
    changed = await call.change(
        lambda ledger, at: Unknown(ref.job_id) if is_hidden(ledger, call.caller, ref.job_id) else end(ledger, at), ended
    )
    outcome = changed.outcome
    if isinstance(outcome, Ended):
        done = how.replace("_", " ")
        call.service.metrics.ended(how)
        audit(call.caller, f"{done} job {ref.job_id!r} epoch {ref.epoch}")
        _log.info("Job %s %s by its worker; it is %s", ref.job_id, done, outcome.job.state.value)
    elif outcome is not None:
        call.service.metrics.ended("stale")
    return changed.answer


def ended(outcome: EndOutcome) -> Answer[EndOut]:
    """Return the answer with a job's state after its claim ended."""
    if isinstance(outcome, Stale | Unknown):
        return refused(outcome)
    job = outcome.job
    return ok(EndOut.model_construct(job_id=job.job_id, state=job.state, failures=job.failures))


def refused(outcome: Stale | Unknown) -> Answer[Never]:
    """Return the answer about a lease that is over, or a job that does not exist."""
    if isinstance(outcome, Unknown):
        return problem_of(unknown(outcome.job_id))
    message = f"the lease on job {outcome.job_id!r} is not the running one: {outcome.reason}"
    return problem_of(StaleLeaseError(message))
