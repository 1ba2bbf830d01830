"""A ledger and the simple model of it, doing the same things in any order; they never differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.jobqueue import (
    ClaimRequest,
    Completion,
    Ended,
    Happening,
    Instant,
    JobSpec,
    JobState,
    LeaseRef,
    Ledger,
    Reserved,
    ResourceSpec,
    Store,
)
from headgate.jobqueue.errors import JobConflictError, WrongStateError
from headgate.jobqueue.outcomes import (
    NoneFree,
    Renewed,
    Repeated,
    ReservationRef,
    Settled,
    Stale,
    Submitted,
    Unknown,
    Waiting,
)
from headgate.jobqueue.resource import ResourceState
from headgate.jobqueue.server.legacy import Holder
from tests.jobqueue.checker import Told, violations_in
from tests.jobqueue.ledger.model import STALE, Model, ModelJob

WORKERS = ("w1", "w2", "w3")
SPECS = st.builds(
    JobSpec,
    job_id=st.just(""),
    team=st.sampled_from(("red", "blue")),
    task=st.sampled_from(("radio", "mugs")),
    pool=st.sampled_from(("arms", "arms", "arms", "legs", "")),
    priority=st.integers(0, 1),
    max_attempts=st.integers(1, 3),
)
SERVERS = st.builds(
    ResourceSpec,
    pool=st.sampled_from(("arms", "arms", "legs")),
    host=st.sampled_from(("host", "host", "Host", "host.")),
    port=st.integers(1, 4),
    compatible_task=st.sampled_from((frozenset(), frozenset(), frozenset({"radio"}), frozenset({"mugs"}))),
    not_compatible_task=st.sampled_from((frozenset(), frozenset(), frozenset(), frozenset({"mugs"}))),
)
REQUESTS = st.builds(
    ClaimRequest,
    worker=st.sampled_from(WORKERS),
    count=st.integers(1, 4),
    lease_s=st.sampled_from((30.0, 90.0)),
    teams=st.sampled_from((None, None, None, None, frozenset({"red"}), frozenset())),
    tasks=st.sampled_from((None, None, None, None, frozenset({"radio"}))),
    pools=st.sampled_from((None, None, None, None, frozenset({"arms", ""}))),
)
COMPLETIONS = st.sampled_from((Completion('{"score": 1}'), Completion('{"score": 2}'), Completion("{}", "ref", "sum")))
FRESH = Callable[[], AbstractContextManager[Store]]


class LedgerMachine(RuleBasedStateMachine):
    """Invariants: model and ledger agree after every step; what was told and committed is in the books at the end."""

    def __init__(self, fresh: FRESH) -> None:
        super().__init__()
        self._open = ExitStack()
        self.store = self._open.enter_context(fresh()).own("machine")
        self.at = Instant(1_000.0, 1_700_000_000.0)
        self._leases = count(1)
        self._names = count(1)
        self.model = Model()
        self.claims: list[LeaseRef] = []
        self.hands: dict[LeaseRef, str] = {}
        self.holders: dict[str, Holder] = {}
        self.reservations: list[ReservationRef] = []
        self.seen_leases: set[str] = set()
        self.said: list[Told] = []
        self.told: list[Told] = []
        self._load()

    def _load(self) -> None:
        self.ledger = Ledger(self.store, self.at, lambda: f"lease-{next(self._leases)}")

    def teardown(self) -> None:
        try:
            self.commit()
            reader = self.store.reader()
            try:
                found = violations_in(reader, list(self.ledger.resources().values()), self.told)
            finally:
                reader.close()
            assert found == []
        finally:
            self.store.close()
            self._open.close()

    # Submission.

    @initialize(specs=st.lists(SPECS, min_size=6, max_size=12), servers=st.lists(SERVERS, min_size=1, max_size=2))
    def begin(self, specs: list[JobSpec], servers: list[ResourceSpec]) -> None:
        self.submit(specs)
        self.add_servers(servers)

    @rule(specs=st.lists(SPECS, min_size=1, max_size=4))
    def submit(self, specs: list[JobSpec]) -> None:
        new = [replace(spec, job_id=f"job-{next(self._names)}") for spec in specs]
        assert self.ledger.submit(new, self.at) == Submitted(len(new), 0)
        self._follow_submission(new)

    def _follow_submission(self, specs: list[JobSpec]) -> None:
        for spec in specs:
            self.model.submit(spec)
            self.said.append(Told(Happening.SUBMITTED, spec.job_id))

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), also=SPECS)
    def submit_duplicate(self, data: st.DataObject, also: JobSpec) -> None:
        known = data.draw(st.sampled_from([job.spec for job in self.model.jobs.values()]))
        new = replace(also, job_id=f"job-{next(self._names)}")
        assert self.ledger.submit([known, new], self.at) == Submitted(1, 1)
        self._follow_submission([new])

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), also=SPECS)
    def submit_conflict(self, data: st.DataObject, also: JobSpec) -> None:
        known = data.draw(st.sampled_from([job.spec for job in self.model.jobs.values()]))
        new = replace(also, job_id=f"job-{next(self._names)}")
        written = len(self.ledger.changes.history)
        with pytest.raises(JobConflictError):
            self.ledger.submit([new, replace(known, instance="another")], self.at)
        assert len(self.ledger.changes.history) == written
        assert self.ledger.job(new.job_id) is None

    # Claims.

    @rule(request=REQUESTS)
    def claim(self, request: ClaimRequest) -> None:
        request = replace(request, count=4) if len(self.claims) < 2 else request
        self._follow_claim(request, self.ledger.claims.claim(request, self.at))

    @rule(request=REQUESTS)
    def claim_or_wait(self, request: ClaimRequest) -> None:
        outcome = self.ledger.claim_or_wait(request, self.at)
        if isinstance(outcome, Waiting):
            assert not self.model.eligible(request)
            self.model.claims[outcome.ticket] = request
        else:
            assert outcome
            self._follow_claim(request, outcome)

    def _follow_claim(self, request: ClaimRequest, jobs: tuple[Any, ...]) -> None:
        self.model.claimed(request, jobs, self.at.now)
        for job in jobs:
            self._is_new(job.lease_id)
            ref = LeaseRef(job.job_id, job.lease_id, job.epoch)
            if job.lease_id not in self.holders:  # nobody can name those of the legacy protocol
                self.claims.append(ref)
            self.hands[ref] = request.worker
            self._say(Happening.CLAIMED, ref)

    def _ref(self, data: st.DataObject) -> LeaseRef:
        """One of all the claims that were ever handed out; mostly one that runs."""
        running = [ref for ref in self.claims if self.model.running(ref)]
        is_any = data.draw(st.sampled_from((False, False, False, True)))
        return data.draw(st.sampled_from(self.claims if is_any or not running else running))

    def _refusal(self, ref: LeaseRef) -> type:
        return Stale if ref.job_id in self.model.jobs else Unknown

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), with_server=st.booleans())
    def renew(self, data: st.DataObject, with_server: bool) -> None:
        ref = self._ref(data)
        outcome = self.ledger.claims.renew(ref, self.at, with_server=with_server)
        job = self.model.running(ref)
        if job is None:
            assert isinstance(outcome, self._refusal(ref))
            return
        assert isinstance(outcome, Renewed)
        job.deadline = self.at.now + job.lease_s
        held = self.model.held_by(ref.job_id)
        assert (outcome.resource.resource_id if outcome.resource else None) == (held.name if held else None)
        if held is not None and with_server:
            held.deadline = self.at.now + held.lease_s

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), completion=COMPLETIONS, keep_server=st.booleans())
    def complete(self, data: st.DataObject, completion: Completion, keep_server: bool) -> None:
        """In time, late, or again: any claim that was ever handed out may come back with any result."""
        self._complete(self._ref(data), completion, keep_server=keep_server)

    @precondition(lambda self: any(job.completion for job in self.model.jobs.values()))
    @rule(data=st.data())
    def complete_duplicate(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from([job for job in self.model.jobs.values() if job.completion]))
        self._complete(LeaseRef(job.spec.job_id, job.lease, job.epoch), job.completion, keep_server=False)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), by=st.sampled_from((-1, 1, 1000)), completion=COMPLETIONS)
    def complete_with_foreign_epoch(self, data: st.DataObject, by: int, completion: Completion) -> None:
        ref = self._ref(data)
        self._complete(ref._replace(epoch=ref.epoch + by), completion, keep_server=False)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), completion=COMPLETIONS)
    def complete_with_foreign_lease(self, data: st.DataObject, completion: Completion) -> None:
        self._complete(self._ref(data)._replace(lease_id="guessed"), completion, keep_server=False)

    def _complete(self, ref: LeaseRef, completion: Completion, *, keep_server: bool) -> None:
        written = len(self.ledger.changes.history)
        outcome = self.ledger.claims.complete(ref, completion, self.at, keep_server=keep_server)
        job = self.model.jobs.get(ref.job_id)
        if job is None:
            assert outcome == Unknown(ref.job_id)
        elif self.model.running(ref) is job:
            assert isinstance(outcome, Ended)
            job.completion = completion
            self.model.end(job, JobState.DONE, keep_server=keep_server)
            self._say(Happening.COMPLETED, ref, result=completion.result)
        elif (job.lease, job.epoch, job.completion) == (ref.lease_id, ref.epoch, completion):
            assert isinstance(outcome, Repeated)
        else:
            assert isinstance(outcome, Stale)
            is_kept = self.model.keeps_late(ref)
            assert len(self.ledger.changes.history) == written + is_kept
            if is_kept:
                late = self.ledger.changes.history[-1]
                assert (late.what, late.epoch, late.note) == (Happening.LATE_RESULT, ref.epoch, completion.result)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), retry=st.booleans())
    def fail(self, data: st.DataObject, retry: bool) -> None:
        ref = self._ref(data)
        job = self.model.running(ref)
        outcome = self.ledger.claims.fail(ref, "it broke", self.at, retry=retry)
        if job is None:
            assert isinstance(outcome, self._refusal(ref))
            return
        self.model.fail(job, retry=retry)
        self._is_ended(outcome, job)
        self._say(Happening.FAILED, ref)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        ref = self._ref(data)
        job = self.model.running(ref)
        outcome = self.ledger.claims.give_back(ref, self.at, "told to stop")
        if job is None:
            assert isinstance(outcome, self._refusal(ref))
            return
        self.model.end(job, JobState.PENDING)
        self._is_ended(outcome, job)
        self._say(Happening.GIVEN_BACK, ref)

    def _is_ended(self, outcome: object, job: ModelJob) -> None:
        assert isinstance(outcome, Ended)
        assert outcome.job == self.ledger.job(job.spec.job_id)

    @precondition(lambda self: len(self.claims) > 5)
    @rule(worker=st.sampled_from(WORKERS))
    def worker_crash(self, worker: str) -> None:
        """Nobody will use its claims again: they end by their deadlines alone."""
        self.claims = [ref for ref in self.claims if self.hands[ref] != worker]

    # Servers.

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), lease_s=st.sampled_from((None, 20.0, 200.0)), wait=st.booleans())
    def reserve(self, data: st.DataObject, lease_s: float | None, wait: bool) -> None:
        self._reserve(self._ref(data), lease_s, wait=wait)

    @precondition(lambda self: self._without_server())
    @rule(data=st.data(), lease_s=st.sampled_from((None, 20.0, 200.0)))
    def reserve_waiting(self, data: st.DataObject, lease_s: float | None) -> None:
        self._reserve(data.draw(st.sampled_from(self._without_server())), lease_s, wait=True)

    def _without_server(self) -> list[LeaseRef]:
        return [
            ref
            for ref in self.claims
            if (job := self.model.running(ref)) and job.spec.pool and not self.model.held_by(ref.job_id)
        ]

    def _reserve(self, ref: LeaseRef, lease_s: float | None, *, wait: bool) -> None:
        job = self.model.running(ref)
        if job is not None and not job.spec.pool:
            with pytest.raises(WrongStateError):
                self.ledger.reserve(ref, self.at, lease_s=lease_s, wait=wait)
            return
        outcome = self.ledger.reserve(ref, self.at, lease_s=lease_s, wait=wait)
        if job is None:
            assert isinstance(outcome, self._refusal(ref))
            return
        self._follow_reservation(ref, job, outcome, lease_s or job.lease_s, wait=wait)

    def _follow_reservation(self, ref: LeaseRef, job: ModelJob, outcome: Any, lease_s: float, *, wait: bool) -> None:
        ticket = outcome.ticket if isinstance(outcome, Waiting) else 0
        expected = self.model.reserve(job, self.at.now, lease_s, wait=wait, ticket=ticket)
        assert _plain(outcome) == expected
        if isinstance(outcome, Reserved):
            held = outcome.resource
            self._say(Happening.RESERVED, LeaseRef(ref.job_id, held.lease_id, held.epoch), held.resource_id)

    @precondition(lambda self: self.reservations)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self._release(data.draw(st.sampled_from(self.reservations[-12:])))

    @precondition(lambda self: self.reservations)
    @rule(data=st.data(), by=st.sampled_from((-1, 1)))
    def release_stale(self, data: st.DataObject, by: int) -> None:
        ref = data.draw(st.sampled_from(self.reservations))
        self._release(ref._replace(epoch=ref.epoch + by))

    def _release(self, ref: ReservationRef) -> None:
        server = self.model.servers.get(ref.resource_id)
        is_held = server is not None and bool(server.job) and (server.lease, server.epoch) == (ref.lease_id, ref.epoch)
        assert self.ledger.release(ref, self.at) is is_held
        if is_held:
            self._say(Happening.RELEASED, LeaseRef(server.job, ref.lease_id, ref.epoch), ref.resource_id)
            self.model.free(server)

    @precondition(lambda self: len(self.model.servers) < 4)
    @rule(specs=st.lists(SERVERS, min_size=1, max_size=2))
    def add_servers(self, specs: list[ResourceSpec]) -> None:
        self.ledger.add_resources(specs, self.at)
        for spec in specs:
            self.model.register(spec)

    @precondition(lambda self: self.model.servers)
    @rule(data=st.data(), state=st.sampled_from((*(ResourceState.OPEN,) * 4, *ResourceState)))
    def drain_down_or_open(self, data: st.DataObject, state: ResourceState) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.servers)))
        self.ledger.change_resource(name, state, self.at, "note" if state is not ResourceState.OPEN else "")
        self.model.servers[name].state = state

    @precondition(lambda self: len(self.model.servers) > 2)
    @rule(data=st.data(), force=st.booleans())
    def remove_server(self, data: st.DataObject, force: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.servers)))
        server = self.model.servers[name]
        if server.job and not force:
            with pytest.raises(WrongStateError):
                self.ledger.remove_resource(name, self.at)
            return
        self.ledger.remove_resource(name, self.at, even_if_held=force)
        self.model.free(server)
        del self.model.servers[name]

    # Hands of the operator.

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        job = self._job(data, JobState.DEAD)
        job_id = job.spec.job_id
        if job.state is not JobState.DEAD:
            with pytest.raises(WrongStateError):
                self.ledger.requeue(job_id, self.at)
            return
        job.state, job.failures, job.worker = JobState.PENDING, 0, ""
        self._is_ended(self.ledger.requeue(job_id, self.at), job)
        self.said.append(Told(Happening.REQUEUED, job_id))

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        job = self._job(data, *JobState)
        job_id = job.spec.job_id
        if job.state in (JobState.DONE, JobState.DEAD):
            with pytest.raises(WrongStateError):
                self.ledger.withdraw(job_id, "no more", self.at)
            return
        outcome = self.ledger.withdraw(job_id, "no more", self.at)
        self.model.end(job, JobState.DEAD)
        self._is_ended(outcome, job)
        self.said.append(Told(Happening.WITHDRAWN, job_id))

    def _job(self, data: st.DataObject, *states: JobState) -> ModelJob:
        jobs = list(self.model.jobs.values())
        wanted = [job for job in jobs if job.state in states]
        return data.draw(st.sampled_from(wanted or jobs))

    # Time.

    @rule(seconds=st.sampled_from((0.0, 1.0, 1.0, 10.0, 10.0, 20.0, 30.0, 31.0, 91.0)))
    def clock_goes_on(self, seconds: float) -> None:
        self.at = Instant(self.at.now + seconds, self.at.wall + seconds)
        ended = self.ledger.expire(self.at)
        assert sorted(job.job_id for job in ended) == sorted(self.model.expire(self.at.now))

    @precondition(lambda self: (self.model.next_deadline() or 0.0) > self.at.now)
    @rule(by=st.sampled_from((0.0, 0.0, 0.5)))
    def clock_reaches_a_deadline(self, by: float) -> None:
        self.clock_goes_on((self.model.next_deadline() or 0.0) + by - self.at.now)

    @rule(hours=st.sampled_from((-1, 1)))
    def wall_clock_is_set(self, hours: int) -> None:
        self.at = self.at._replace(wall=self.at.wall + 3600 * hours)

    @rule()
    def process_stood_still(self) -> None:
        self.at = self.at._replace(now=self.at.now + 10_000)
        self.ledger.extend_all(self.at)
        self.model.extend_all(self.at.now)
        assert self.ledger.expire(self.at) == []

    # Those who wait.

    @rule()
    def settle(self) -> None:
        settled = self.ledger.settle(self.at)
        to_claims = [one for one in settled if isinstance(one.outcome, tuple)]
        told = {one.ticket: _plain(one.outcome) for one in settled if not isinstance(one.outcome, tuple)}
        assert len(told) + len(to_claims) == len({one.ticket for one in settled}) == len(settled)
        assert told == self.model.settle(self.at.now)
        for one in to_claims:
            self._follow_settled(one)
        assert not any(self.model.eligible(request) for request in self.model.claims.values())

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=3), specs=st.lists(SPECS, min_size=1, max_size=3))
    def workers_wait_for_jobs(self, requests: list[ClaimRequest], specs: list[JobSpec]) -> None:
        for request in requests:
            self.claim_or_wait(replace(request, count=4))
        self.submit(specs)
        self.settle()

    @precondition(lambda self: any(server.job for server in self.model.servers.values()))
    @rule(data=st.data(), more=st.integers(1, 3))
    def jobs_wait_for_a_server(self, data: st.DataObject, more: int) -> None:
        in_some_order = data.draw(st.permutations(self._without_server()))
        for ref in in_some_order[:more]:
            self._reserve(ref, None, wait=data.draw(st.booleans()))
            self.at = self.at._replace(now=self.at.now + 1.0)
        for ref in self._without_server()[:more]:
            self._reserve(ref, None, wait=True)
        held = [server for server in self.model.servers.values() if server.job]
        if held:
            server = data.draw(st.sampled_from(held))
            self._release(ReservationRef(server.name, server.lease or "", server.epoch))
        for ref in self._without_server()[:1]:
            self._reserve(ref, None, wait=False)
        self.settle()

    def _follow_settled(self, one: Settled) -> None:
        request = self.model.claims.pop(one.ticket)
        earlier = [other for ticket, other in self.model.claims.items() if ticket < one.ticket]
        assert not any(self.model.eligible(other) for other in earlier), "somebody who waits longer was passed over"
        self._follow_claim(request, one.outcome)

    @precondition(lambda self: self.model.claims or self.model.line)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        tickets = [*self.model.claims, *(wait.ticket for wait in self.model.line)]
        ticket = data.draw(st.sampled_from(tickets))
        assert self.ledger.leave(ticket)
        assert not self.ledger.leave(ticket)
        self.model.claims.pop(ticket, None)
        self.model.line = [wait for wait in self.model.line if wait.ticket != ticket]

    # Durability.

    @rule()
    def commit(self) -> None:
        self.store.commit(self.ledger.changes)
        self.ledger.committed()
        self.model.commit()
        self.told += self.said
        self.said.clear()
        stored = self.store.jobs(list(self.model.jobs))
        assert {job_id: job.state for job_id, job in stored.items()} == {
            job_id: job.state for job_id, job in self.model.jobs.items()
        }

    @rule(kept=st.sampled_from((True, True, False)))
    def restart(self, kept: bool) -> None:
        """Killed before its commit, or after it and before anyone could be answered."""
        if kept:
            self.commit()
        self.said.clear()
        self.store.close()
        self.store.own("machine again")
        self.model = self.model.crash(self.at.now)
        self._load()

    # Always.

    @invariant()
    def they_agree(self) -> None:
        self.ledger.validate()
        jobs = self.ledger._working_set.jobs(list(self.model.jobs))
        assert {
            job_id: (job.state, job.epoch, job.failures, job.lease_id, job.worker, job.spec)
            for job_id, job in jobs.items()
        } == {
            job_id: (job.state, job.epoch, job.failures, job.lease, job.worker, job.spec)
            for job_id, job in self.model.jobs.items()
        }
        self._servers_agree()
        counts = {lane: by_state for lane, by_state in self.ledger.lane_counts().items() if any(by_state.values())}
        assert counts == self.model.counts()
        assert self.ledger.next_deadline() == self.model.next_deadline()
        assert self.ledger.waiting_claims == len(self.model.claims)
        for worker in WORKERS:
            held = [
                job for job in self.model.jobs.values() if job.worker == worker and job.state is JobState.IN_PROGRESS
            ]
            assert [job.seq for job in self.ledger.claims.of_worker(worker)] == sorted(job.seq for job in held)

    def _servers_agree(self) -> None:
        resources = self.ledger.resources()
        for server in self.model.servers.values():
            if server.lease is None:
                resource = resources[server.name]
                self._is_new(resource.lease_id)
                server.lease = resource.lease_id
                self.reservations.append(ReservationRef(server.name, resource.lease_id, resource.epoch))
        assert {
            one.resource_id: (list(one.specs), one.state, one.epoch, one.job_id, one.lease_id, one.lease_s)
            for one in resources.values()
        } == {
            one.name: (list(one.specs.values()), one.state, one.epoch, one.job, one.lease, one.lease_s)
            for one in self.model.servers.values()
        }

    def _is_new(self, lease_id: str) -> None:
        assert lease_id
        assert lease_id not in self.seen_leases
        self.seen_leases.add(lease_id)

    def _say(self, what: Happening, ref: LeaseRef, resource_id: str = "", result: str | None = None) -> None:
        worker = self.hands.get(ref, "")
        self.said.append(Told(what, ref.job_id, ref.lease_id, ref.epoch, worker, resource_id, result))


def _plain(outcome: object) -> tuple[object, ...]:
    match outcome:
        case Reserved(resource, _):
            return "reserved", resource.resource_id
        case NoneFree(ahead, serving):
            return "none", ahead, serving
        case Waiting(ticket):
            return "waiting", ticket
        case Stale():
            return STALE
    raise AssertionError(outcome)
