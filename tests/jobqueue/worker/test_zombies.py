"""A worker whose job was given to another one: nothing that it says counts, and it takes nothing from its successor."""

from __future__ import annotations

import pytest

from headgate.jobqueue.errors import StaleLeaseError
from headgate.jobqueue.wire import (
    ClaimedJob,
    ClaimIn,
    CompleteIn,
    FailIn,
    GiveBackIn,
    JobLeaseIn,
    ReleaseIn,
    RequeueIn,
    ReservationOut,
    ReserveIn,
)
from headgate.jobqueue.worker import SyncJobQueueClient
from tests.jobqueue.worker.queue_site import QueueSite


def claimed(client: SyncJobQueueClient, worker: str) -> tuple[ClaimedJob, ReservationOut]:
    (job,) = client.claim(ClaimIn(worker=worker)).jobs
    server = client.reserve(ReserveIn(**dict(lease(job)))).reservation
    assert server is not None
    return job, server


def lease(job: ClaimedJob) -> JobLeaseIn:
    return JobLeaseIn(job_id=job.job.id, lease_id=job.lease.lease_id, epoch=job.lease.epoch)


def test_a_zombie_is_refused_in_everything(site: QueueSite) -> None:
    site.register()
    site.submit("1", pool="p")
    with site.client as client:
        zombie, its_server = claimed(client, "zombie")
        client.withdraw("1")
        client.requeue(RequeueIn(job_ids=["1"]))
        successor, server = claimed(client, "successor")
        assert (server.resource_id, server.epoch) == (its_server.resource_id, its_server.epoch + 1)
        old = {"lease_id": zombie.lease.lease_id, "epoch": zombie.lease.epoch}

        renewals = client.renew([lease(zombie), lease(successor)]).renewals
        assert [renewal.status for renewal in renewals] == ["lost", "renewed"]
        with pytest.raises(StaleLeaseError, match="epoch 2"):
            client.complete("1", CompleteIn(**old, result={"q_score": 1}))
        with pytest.raises(StaleLeaseError):
            client.fail("1", FailIn(**old, error="x"))
        with pytest.raises(StaleLeaseError):
            client.give_back("1", GiveBackIn(**old))
        with pytest.raises(StaleLeaseError):
            client.reserve(ReserveIn(job_id="1", **old))
        held = {"lease_id": its_server.lease_id, "epoch": its_server.epoch}
        with pytest.raises(StaleLeaseError):
            client.release(ReleaseIn(resource_id=its_server.resource_id, **held))

        assert client.resources()[0].worker == "successor"
        assert client.job("1").state == "in_progress"
        assert client.complete("1", CompleteIn(lease_id=successor.lease.lease_id, epoch=2)).status == "done"
        assert client.complete("1", CompleteIn(lease_id=successor.lease.lease_id, epoch=2)).status == "repeated"
    assert site.happenings("1").count("late_result") == 1
    assert site.happenings("1").count("completed") == 1
