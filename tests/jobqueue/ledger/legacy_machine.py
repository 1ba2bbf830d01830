"""The same with workers of the legacy protocol among those of `/v1`, under equal names."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headgate.jobqueue import ClaimRequest, Completion, Happening, JobState, LeaseRef
from headgate.jobqueue.server import legacy
from headgate.jobqueue.server.legacy import Holder, LegacyLease, NotHeld
from tests.jobqueue.ledger.machine import WORKERS, LedgerMachine
from tests.jobqueue.ledger.model import ModelJob

HOLDERS = st.builds(Holder, worker=st.sampled_from(WORKERS), token_id=st.sampled_from(("", "t1", "t2")))


class MixedLedgerMachine(LedgerMachine):
    """Invariant: each keeps and ends its own claims alone."""

    @rule(holder=HOLDERS)
    def legacy_take(self, holder: Holder) -> None:
        pools = frozenset(pool for pool in self.ledger.servers.loads.pools() if pool)
        job = legacy.take(self.ledger, holder, None, 60.0, self.at)
        request = ClaimRequest(holder.worker, 1, 60.0, pools=pools)
        if job is not None:
            self.holders[job.lease_id] = holder
        self._follow_claim(request, () if job is None else (job,))

    def _any_job(self, data: st.DataObject, holder: Holder) -> tuple[Holder, ModelJob, bool]:
        """Any job for any worker, often one that it holds; and whether it does."""
        jobs = list(self.model.jobs.values())
        legacy = [job for job in jobs if job.state is JobState.IN_PROGRESS and job.lease in self.holders]
        job = data.draw(st.sampled_from(legacy if legacy and data.draw(st.booleans()) else jobs))
        if job.lease in self.holders and data.draw(st.booleans()):
            holder = self.holders[job.lease]
        return holder, job, job.state is JobState.IN_PROGRESS and self.holders.get(job.lease) == holder

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), drawn=HOLDERS)
    def legacy_done(self, data: st.DataObject, drawn: Holder) -> None:
        holder, job, holds = self._any_job(data, drawn)
        job_id = job.spec.job_id
        assert legacy.complete_held(self.ledger, holder, job_id, self.at) is holds
        if holds:
            job.completion = Completion()
            self.model.end(job, JobState.DONE, keep_server=True)
            self._say(Happening.COMPLETED, LeaseRef(job_id, job.lease, job.epoch), result="{}")

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), drawn=HOLDERS)
    def legacy_beat(self, data: st.DataObject, drawn: Holder) -> None:
        holder, job, holds = self._any_job(data, drawn)
        assert legacy.beat(self.ledger, holder, job.spec.job_id, self.at) is holds
        if holds:
            job.deadline = self.at.now + job.lease_s

    @rule(holder=HOLDERS)
    def legacy_beat_all(self, holder: Holder) -> None:
        own = [job for job in self.model.jobs.values() if self.holders.get(job.lease) == holder]
        servers = [server for job in own if (server := self.model.held_by(job.spec.job_id))]
        running = [job for job in own if job.state is JobState.IN_PROGRESS]
        number, by_type = legacy.beat_all(self.ledger, holder, None, self.at)
        assert (number, sum(by_type.values())) == (len(running), len(servers))
        for one in (*running, *servers):
            one.deadline = self.at.now + one.lease_s

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), drawn=HOLDERS, wait=st.booleans())
    def legacy_acquire(self, data: st.DataObject, drawn: Holder, wait: bool) -> None:
        holder, job, holds = self._any_job(data, drawn)
        ref, pool = LeaseRef(job.spec.job_id, job.lease, job.epoch), job.spec.pool
        outcome = legacy.reserve_held(self.ledger, pool, holder, ref.job_id, 40.0, self.at, wait=wait)
        if holds:
            self._follow_reservation(ref, job, outcome, 40.0, wait=wait)
        else:
            assert isinstance(outcome, NotHeld)

    @precondition(lambda self: any(server.job for server in self.model.servers.values()))
    @rule(data=st.data(), drawn=HOLDERS, ends=st.booleans())
    def legacy_release_or_beat_server(self, data: st.DataObject, drawn: Holder, ends: bool) -> None:
        server = data.draw(st.sampled_from([server for server in self.model.servers.values() if server.job]))
        job = self.model.jobs[server.job]
        own = self.holders.get(job.lease)
        holder = own if own is not None and data.draw(st.booleans()) else drawn
        lease = LegacyLease(job.spec.pool, holder, job.spec.job_id, server.index)
        do = legacy.release_held if ends else legacy.beat_server
        assert do(self.ledger, lease, self.at) is (own == holder)
        if own == holder and ends:
            self._say(Happening.RELEASED, LeaseRef(server.job, server.lease or "", server.epoch), server.name)
            self.model.free(server)
        elif own == holder:
            server.deadline = self.at.now + server.lease_s
