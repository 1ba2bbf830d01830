"""Jobs of `/v1`: submitters add them, follow and change them, and collect their results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from headgate.jobqueue.errors import WrongStateError
from headgate.jobqueue.job import Job, JobState
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Ended, EndOutcome, Instant, Unknown
from headgate.jobqueue.records import Happening, HistoryEntry, JobQuery
from headgate.jobqueue.server.access import check_submission, narrowed, sees, unknown
from headgate.jobqueue.server.answers import Answer, ModelT, ok
from headgate.jobqueue.server.documents import DeadQuery, HistoryQuery, JobPath, JobsQuery, PageQuery
from headgate.jobqueue.server.route import Call, Changed, audit
from headgate.jobqueue.server.v1_claims import ended, named
from headgate.jobqueue.stores.sql import Reader
from headgate.jobqueue.wire import (
    MOST_AT_ONCE,
    EndOut,
    EntryOut,
    FinishedOut,
    HistoryOut,
    JobChoiceIn,
    JobOut,
    JobsOut,
    ReasonIn,
    RequeueIn,
    RequeueOut,
    ResultsOut,
    SubmitIn,
    SubmitOut,
    WithdrawIn,
    WithdrawOut,
)
from headgate.net.authority import Caller

_log = logging.getLogger("headgate.jobqueue")

T = TypeVar("T")

_CHUNK: Final = 200
_UNENDED: Final = (JobState.PENDING, JobState.IN_PROGRESS)
"""Running jobs last: they may end meanwhile."""

_PAGE_BYTES: Final = 8 * 1024**2
"""A page ends once it has grown to this: payloads and results may have 256 KiB each."""


async def submit(call: Call, body: SubmitIn) -> Answer[SubmitOut]:
    """Add jobs, all or none; those that exist with the same contents are left alone."""
    specs = await call.service.large_bodies.each(body.jobs, lambda job: job.spec)
    check_submission(call.caller, specs)
    changed = await call.change(
        lambda ledger, at: ledger.submit(specs, at),
        lambda found: ok(SubmitOut(added=found.added, existing=found.existing)),
    )
    submitted = changed.outcome
    if submitted is not None and submitted.added:
        audit(call.caller, f"submitted {named([spec.job_id for spec in specs])}; new: {submitted.added}")
        _log.info("Jobs submitted: %d", submitted.added)
    return changed.answer


async def list_jobs(call: Call, query: JobsQuery) -> Answer[JobsOut]:
    """Return a page of jobs."""
    teams = narrowed(None if query.team is None else [query.team], call.caller.teams)
    jobs, is_last = await _chunks(
        call,
        lambda reader, behind, most: reader.jobs(JobQuery(query.state, teams, query.task, query.pool, behind, most)),
        lambda job: job.seq,
        query,
        _job_bytes,
    )
    following = None if is_last else jobs[-1].seq
    return ok(JobsOut.model_construct(jobs=[JobOut.of(job) for job in jobs], next=following))


async def list_dead(call: Call, query: DeadQuery) -> Answer[JobsOut]:
    """Return a page of dead jobs."""
    return await list_jobs(call, JobsQuery(state=JobState.DEAD, **query.model_dump()))


async def _chunks(
    call: Call,
    chunk: Callable[[Reader, int, int], Sequence[T]],
    cursor: Callable[[T], int],
    page: PageQuery,
    size: Callable[[T], int],
) -> tuple[list[T], bool]:
    """Return a listing, read in chunks up to the page's bounds, and whether that was all of it."""
    found: list[T] = []
    total = 0
    while len(found) < page.limit and total < _PAGE_BYTES:
        most = min(_CHUNK, page.limit - len(found))
        behind = cursor(found[-1]) if found else page.after
        part = await call.service.listed(chunk, behind, most)
        found += part
        total += sum(map(size, part))
        if len(part) < most:
            return found, True
    return found, False


def _job_bytes(job: Job) -> int:
    return len(job.spec.payload) + len(job.result)


async def show(call: Call, path: JobPath) -> Answer[JobOut]:
    """Return a job in its current state."""
    job = await call.look(lambda ledger, _: ledger.job(path.job_id))
    if job is None or not sees(call.caller, job):
        raise unknown(path.job_id)
    return ok(JobOut.of(job))


async def job_history(call: Call, path: JobPath, query: PageQuery) -> Answer[HistoryOut]:
    """Return the history of a job."""
    job_id = path.job_id
    if not await call.look(lambda ledger, _: sees(call.caller, ledger.job(job_id))):
        raise unknown(job_id)
    entries = await _entries(call, query, job_id=job_id)
    return _history_answer(entries, entries[-1].entry if entries else query.after)


async def history(call: Call, query: HistoryQuery) -> Answer[HistoryOut]:
    """Return the history; tokens bound to teams see that of their teams' jobs."""
    entries = await _entries(call, query, what=query.what)
    following = entries[-1].entry if entries else query.after
    if call.caller.teams is not None:
        entries = await _of_own_jobs(call, entries)
    return _history_answer(entries, following)


async def _entries(
    call: Call, query: PageQuery, *, job_id: str | None = None, what: Sequence[Happening] = ()
) -> list[HistoryEntry]:
    entries, _ = await _chunks(
        call,
        lambda reader, behind, most: reader.history(behind, most, job_id=job_id, what=what),
        lambda entry: entry.entry,
        query,
        lambda entry: len(entry.note) + 200,
    )
    return entries


async def _of_own_jobs(call: Call, entries: list[HistoryEntry]) -> list[HistoryEntry]:
    job_ids = sorted({entry.job_id for entry in entries if entry.job_id})
    own: set[str] = set()
    for start in range(0, len(job_ids), _CHUNK):
        some = job_ids[start : start + _CHUNK]
        own |= await call.look(partial(_seen_of, caller=call.caller, job_ids=some))
    return [entry for entry in entries if entry.job_id in own]


def _seen_of(ledger: Ledger, _: Instant, caller: Caller, job_ids: Sequence[str]) -> set[str]:
    return {job_id for job_id in job_ids if sees(caller, ledger.job(job_id))}


def _history_answer(entries: list[HistoryEntry], following: int) -> Answer[HistoryOut]:
    return ok(HistoryOut.model_construct(entries=[EntryOut.of(entry) for entry in entries], next=following))


async def results(call: Call, query: PageQuery) -> Answer[ResultsOut]:
    """Return completed jobs in the order of their completion."""
    finished, _ = await _chunks(
        call,
        lambda reader, behind, most: reader.finished(behind, most, call.caller.teams),
        lambda one: one.entry,
        query,
        lambda one: _job_bytes(one.job),
    )
    shown = [FinishedOut.model_construct(entry=one.entry, job=JobOut.of(one.job)) for one in finished]
    following = finished[-1].entry if finished else query.after
    return ok(ResultsOut.model_construct(results=shown, next=following))


async def withdraw(call: Call, path: JobPath, body: ReasonIn) -> Answer[EndOut]:
    """Make a job dead, so that it is not run any more."""
    job_id = path.job_id

    def operation(ledger: Ledger, at: Instant) -> tuple[EndOutcome, str]:
        job = ledger.job(job_id)
        if job is None or not sees(call.caller, job):
            return Unknown(job_id), ""
        return ledger.withdraw(job_id, body.reason, at), job.state.value

    changed = await call.change(operation, lambda found: ended(found[0]))
    outcome, before = changed.outcome or (None, "")
    if isinstance(outcome, Ended):
        await call.changed("withdraw", job_id, before=before, after=f"dead: {body.reason}")
        _log.info("Job %s withdrawn", job_id)
    return changed.answer


async def withdraw_many(call: Call, body: WithdrawIn) -> Answer[WithdrawOut]:
    """Make jobs dead, so that they are not run any more: those named, all or none, or all that match."""
    changed = await _steered(
        call, body, _UNENDED, "only pending and running jobs can be withdrawn",
        lambda ledger, job_id, at: ledger.withdraw(job_id, body.reason, at),
        lambda found: ok(WithdrawOut(withdrawn=found)),
    )  # fmt: skip
    if withdrawn := changed.outcome:
        await call.changed("withdraw", named(withdrawn), after=f"dead: {body.reason}")
        _log.info("Jobs withdrawn: %d", len(withdrawn))
    return changed.answer


async def requeue(call: Call, body: RequeueIn) -> Answer[RequeueOut]:
    """Give dead jobs all their attempts again: those named, all or none, or all that match."""
    changed = await _steered(
        call, body, (JobState.DEAD,), "only dead jobs can be requeued",
        lambda ledger, job_id, at: ledger.requeue(job_id, at),
        lambda found: ok(RequeueOut(requeued=found)),
    )  # fmt: skip
    if requeued := changed.outcome:
        await call.changed("requeue", named(requeued), before="dead", after="pending")
        _log.info("%d dead jobs requeued", len(requeued))
    return changed.answer


async def _steered(
    call: Call,
    body: JobChoiceIn,
    states: tuple[JobState, ...],
    rule: str,
    step: Callable[[Ledger, str, Instant], EndOutcome],
    answer: Callable[[list[str]], Answer[ModelT]],
) -> Changed[ModelT, list[str]]:
    """Apply a step to the chosen jobs that are in one of `states`; named ones in other states break the `rule`."""
    job_ids = body.job_ids if body.job_ids is not None else await _matching(call, body, states)

    def operation(ledger: Ledger, at: Instant) -> list[str]:
        if body.job_ids is not None:
            _check_states(ledger, call, job_ids, states, rule)
        jobs = filter(None, map(ledger.job, dict.fromkeys(job_ids)))
        meant = [
            job.job_id for job in jobs
            if job.state in states and sees(call.caller, job)
            and body.team in {None, job.spec.team} and body.task in {None, job.spec.task}
        ]  # fmt: skip
        for job_id in meant:
            step(ledger, job_id, at)
        return meant

    return await call.change(operation, answer)


def _check_states(ledger: Ledger, call: Call, job_ids: Sequence[str], states: tuple[JobState, ...], rule: str) -> None:
    """Check that a step is possible for all jobs that were named: it applies to all or none."""
    for job_id in job_ids:
        job = ledger.job(job_id)
        if job is None or not sees(call.caller, job):
            raise unknown(job_id)
        if job.state not in states:
            raise WrongStateError(f"job {job_id!r} is {job.state}; {rule}")


async def _matching(call: Call, body: JobChoiceIn, states: tuple[JobState, ...]) -> list[str]:
    """Return the chosen jobs, ordered as `states`, at most as many as one request may change."""
    teams = narrowed(None if body.team is None else [body.team], call.caller.teams)
    is_for_all = isinstance(body, RequeueIn) and body.withdrawn
    found: list[str] = []
    for state in states:
        query = JobQuery(state, teams, body.task, limit=MOST_AT_ONCE)
        while len(found) < MOST_AT_ONCE and (jobs := await call.service.listed(Reader.jobs, query)):
            found += [job.job_id for job in jobs if is_for_all or not job.is_withdrawn]
            query = replace(query, after=jobs[-1].seq)
    return found[:MOST_AT_ONCE]
