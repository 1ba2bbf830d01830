"""Who uses which policy server, and who is next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.jobqueue import Changes, Completion, Happening, Job, JobState, LeaseRef, Reserved, ResourceSpec
from headgate.jobqueue.errors import UnknownResourceError, WrongStateError
from headgate.jobqueue.outcomes import NoneFree, Renewed, Settled, Stale, Waiting
from headgate.jobqueue.resource import Resource, ResourceState
from headgate.jobqueue.stores.sqlite import MemoryStore
from tests.jobqueue.ledger.queue import POOL, Queue, ref, reservation, server, spec


def queue_of(servers: int, jobs: int) -> tuple[Queue, list[Job]]:
    """A queue with alike servers and running jobs, more of them perhaps."""
    queue = Queue()
    queue.add(*(server(port) for port in range(servers)))
    queue.submit(*(spec(f"{n}", pool=POOL) for n in range(jobs)))
    running = queue.claim(count=jobs)
    assert len(running) == jobs
    return queue, running


def test_asking_again_gives_the_same_server() -> None:
    queue, (job,) = queue_of(2, 1)
    first = queue.reserved(job)
    assert queue.reserved(job) == first
    assert queue.ledger.reserve(ref(job), queue.at, wait=True) == Reserved(first, first.spec)
    assert (first.job_id, first.epoch, first.worker, first.index) == (job.job_id, 1, "worker", 0)
    assert len(queue.entries(Happening.RESERVED)) == 1


def test_without_a_free_server_it_is_said_who_is_ahead_and_how_many_serve() -> None:
    queue, (busy, first, second) = queue_of(1, 3)
    queue.reserved(busy)
    queue.waits(first)
    queue.passes(1)
    assert queue.ledger.reserve(ref(second), queue.at) == NoneFree(ahead=1, serving=1)
    queue.ledger.change_resource(f"{POOL}/0", ResourceState.DRAINING, queue.at)
    assert queue.ledger.reserve(ref(second), queue.at) == NoneFree(ahead=1, serving=0)


def test_a_released_server_goes_to_who_waits_longest() -> None:
    queue, (busy, *others) = queue_of(1, 4)
    held = queue.reserved(busy)
    tickets = [queue.waits(job) for job in others]
    for job, ticket in zip(others, tickets, strict=True):
        assert queue.ledger.release(reservation(held), queue.at)
        settled = queue.settle()
        assert list(settled) == [ticket]
        held = settled[ticket].resource
        assert held.job_id == job.job_id
    assert held.epoch == 4


def test_who_asked_in_vain_before_keeps_the_place_of_the_first_asking() -> None:
    queue, (busy, early, late) = queue_of(1, 3)
    held = queue.reserved(busy)
    assert isinstance(queue.ledger.reserve(ref(early), queue.at), NoneFree)
    queue.passes(1)
    queue.waits(late)
    queue.passes(1)
    ticket = queue.waits(early)
    queue.ledger.release(reservation(held), queue.at)
    assert list(queue.settle()) == [ticket]


def test_nobody_new_overtakes_those_who_wait_for_a_server_that_was_just_freed() -> None:
    queue, (busy, waiting, new) = queue_of(1, 3)
    held = queue.reserved(busy)
    ticket = queue.waits(waiting)
    queue.ledger.release(reservation(held), queue.at)
    assert isinstance(queue.ledger.reserve(ref(new), queue.at), NoneFree)
    assert list(queue.settle()) == [ticket]


def test_a_waiter_that_asks_again_just_when_a_server_is_freed_gets_one_server() -> None:
    queue, (busy, other, waiting) = queue_of(2, 3)
    held = [queue.reserved(busy), queue.reserved(other)]
    ticket = queue.waits(waiting)
    for resource in held:
        queue.ledger.release(reservation(resource), queue.at)
    again = queue.reserved(waiting)
    assert queue.settle() == {ticket: Reserved(again, again.spec)}
    assert [one.job_id for one in queue.ledger.resources().values()].count(waiting.job_id) == 1


def test_asking_again_from_the_line_ends_the_first_wait() -> None:
    queue, (busy, waiting) = queue_of(1, 2)
    held = queue.reserved(busy)
    first, second = queue.waits(waiting), queue.waits(waiting)
    assert list(queue.settle()) == [first]
    queue.ledger.release(reservation(held), queue.at)
    assert list(queue.settle()) == [second]


def test_a_waiter_who_leaves_is_passed_over() -> None:
    queue, (busy, gone, waiting) = queue_of(1, 3)
    held = queue.reserved(busy)
    left, stays = queue.waits(gone), queue.waits(waiting)
    assert queue.ledger.leave(left)
    assert not queue.ledger.leave(left)
    queue.ledger.release(reservation(held), queue.at)
    assert list(queue.settle()) == [stays]
    assert not queue.ledger.leave(stays)


@pytest.mark.parametrize("how", ["complete", "fail", "give_back", "withdraw", "expire"])
def test_the_end_of_a_job_frees_its_server_and_ends_its_wait(how: str) -> None:
    queue, (holder, waiter) = queue_of(1, 2)
    queue.reserved(holder)
    ticket = queue.waits(waiter)
    claims, at = queue.ledger.claims, queue.at
    if how == "expire":
        claims.renew(ref(waiter), at)
        queue.passes(80)
        claims.renew(ref(waiter), queue.at)
        assert queue.passes(11) == [holder.job_id]
    elif how == "complete":
        claims.complete(ref(holder), Completion(), at)
    elif how == "fail":
        claims.fail(ref(holder), "it broke", at)
    elif how == "give_back":
        claims.give_back(ref(holder), at)
    else:
        queue.ledger.withdraw(holder.job_id, "no more", at)
    settled = queue.settle()
    assert isinstance(settled[ticket], Reserved)
    assert settled[ticket].resource.job_id == waiter.job_id


@pytest.mark.parametrize("how", ["complete", "fail", "give_back", "withdraw", "expire"])
def test_a_job_that_ends_in_line_is_told_that_its_lease_is_over(how: str) -> None:
    queue, (holder, waiter) = queue_of(1, 2)
    queue.reserved(holder)
    ticket = queue.waits(waiter)
    claims, at = queue.ledger.claims, queue.at
    if how == "expire":
        queue.passes(91)
    elif how == "complete":
        claims.complete(ref(waiter), Completion(), at)
    elif how == "fail":
        claims.fail(ref(waiter), "it broke", at)
    elif how == "give_back":
        claims.give_back(ref(waiter), at)
    else:
        queue.ledger.withdraw(waiter.job_id, "no more", at)
    settled = queue.settle()
    assert list(settled) == [ticket]
    assert isinstance(settled[ticket], Stale)


def test_a_worker_of_the_seed_keeps_its_server_until_it_releases_it() -> None:
    queue, (job,) = queue_of(1, 1)
    held = queue.reserved(job)
    queue.ledger.claims.complete(ref(job), Completion(), queue.at, keep_server=True)
    queue.settle()
    assert not queue.ledger.resources()[held.resource_id].is_free
    queue.commit()
    queue.restart()
    assert not queue.ledger.resources()[held.resource_id].is_free
    assert queue.ledger.release(reservation(held), queue.at)
    assert queue.ledger.resources()[held.resource_id].is_free
    queue.ledger.validate()


def test_a_server_is_released_once_and_only_by_its_holder() -> None:
    queue, (job,) = queue_of(1, 1)
    held = queue.reserved(job)
    named = reservation(held)
    wrong = (
        named._replace(epoch=0),
        named._replace(epoch=2),
        named._replace(lease_id="x"),
        named._replace(lease_id=""),
        named._replace(resource_id="robots/9"),
    )
    assert not any(queue.ledger.release(one, queue.at) for one in wrong)
    assert queue.ledger.release(named, queue.at)
    assert not queue.ledger.release(named, queue.at)
    assert not queue.ledger.release(named._replace(lease_id="", epoch=1), queue.at)
    assert len(queue.entries(Happening.RELEASED)) == 1


def test_a_late_release_does_not_free_the_next_reservation() -> None:
    queue, (first, second) = queue_of(1, 2)
    old = queue.reserved(first)
    queue.ledger.release(reservation(old), queue.at)
    new = queue.reserved(second)
    assert new.epoch == old.epoch + 1
    assert not queue.ledger.release(reservation(old), queue.at)
    assert queue.ledger.resources()[new.resource_id] == new


def test_a_reservation_ends_when_nobody_renews_it_and_its_job_goes_on() -> None:
    queue, (job,) = queue_of(1, 1)
    queue.ledger.reserve(ref(job), queue.at, lease_s=20.0)
    queue.passes(20)
    assert queue.ledger.servers.held_by(job.job_id) is not None
    queue.passes(1)
    assert queue.ledger.servers.held_by(job.job_id) is None
    assert queue.state(job.job_id) is JobState.IN_PROGRESS
    (entry,) = queue.entries(Happening.RESERVATION_EXPIRED)
    assert (entry.job_id, entry.resource_id, entry.note) == (job.job_id, f"{POOL}/0", "not renewed for 20 s")


def test_renewing_a_claim_renews_its_server_unless_told_otherwise() -> None:
    queue, (job,) = queue_of(1, 1)
    queue.ledger.reserve(ref(job), queue.at, lease_s=20.0)
    queue.passes(15)
    renewed = queue.ledger.claims.renew(ref(job), queue.at)
    assert isinstance(renewed, Renewed)
    assert renewed.resource is not None
    queue.passes(15)
    queue.ledger.claims.renew(ref(job), queue.at, with_server=False)
    queue.passes(6)
    assert queue.ledger.servers.held_by(job.job_id) is None


def test_of_several_servers_the_one_for_the_fewest_waiting_tasks_is_given() -> None:
    queue = Queue()
    queue.add(server(0), server(1, "radio"))
    queue.submit(spec("mugs", task="mugs", pool=POOL), spec("radio", task="radio", pool=POOL), spec("later", pool=POOL))
    _, radio = queue.claim(count=2)
    assert queue.reserved(radio).index == 1


def test_tasks_that_wait_for_other_pools_do_not_count() -> None:
    queue = Queue()
    queue.add(server(0), server(1, "mugs", "radio"), server(0, pool="other"))
    queue.submit(spec("r", task="radio", pool=POOL), spec("d", task="doors", pool="other"))
    job = next(job for job in queue.claim(count=2, pools=frozenset({POOL})))
    assert queue.reserved(job).index == 0


def test_a_job_without_a_pool_cannot_reserve() -> None:
    queue = Queue()
    queue.submit(spec("1"))
    job = queue.one()
    with pytest.raises(WrongStateError, match="'1' has no pool"):
        queue.ledger.reserve(ref(job), queue.at)


# The servers themselves.


def test_a_draining_server_ends_its_job_and_takes_no_other() -> None:
    queue, (busy, waiting) = queue_of(1, 2)
    held = queue.reserved(busy)
    ticket = queue.waits(waiting)
    queue.ledger.change_resource(held.resource_id, ResourceState.DRAINING, queue.at, "new weights")
    assert queue.settle() == {}
    assert queue.ledger.resources()[held.resource_id].job_id == busy.job_id
    assert queue.ledger.release(reservation(held), queue.at)
    assert queue.settle() == {}
    queue.ledger.change_resource(held.resource_id, ResourceState.OPEN, queue.at)
    assert list(queue.settle()) == [ticket]


def test_changing_nothing_writes_nothing() -> None:
    queue, _ = queue_of(1, 0)
    queue.commit()
    queue.ledger.change_resource(f"{POOL}/0", ResourceState.OPEN, queue.at)
    queue.add(server(0))
    assert not queue.ledger.changes


def test_an_added_server_goes_to_the_longest_waiter_that_it_serves() -> None:
    queue = Queue()
    queue.add(server(0))
    queue.submit(*(spec(f"{task}{n}", task=task, pool=POOL) for n in range(2) for task in ("radio", "mugs")))
    jobs = {job.job_id: job for job in queue.claim(count=4)}
    queue.reserved(jobs["radio0"])
    queue.waits(jobs["radio1"])
    first, _ = queue.waits(jobs["mugs0"]), queue.waits(jobs["mugs1"])
    queue.add(server(1, "mugs"))
    assert list(queue.settle()) == [first]


def test_a_server_registered_again_keeps_its_number_its_job_and_its_state() -> None:
    queue, (job,) = queue_of(2, 1)
    held = queue.reserved(job)
    queue.ledger.change_resource(held.resource_id, ResourceState.DRAINING, queue.at, "soon")
    (again,) = queue.add(server(0, "other task"))
    assert (again.index, again.job_id, again.lease_id, again.state) == (
        0, job.job_id, held.lease_id, ResourceState.DRAINING,
    )  # fmt: skip
    assert again.spec.compatible_task == {"other task"}
    assert len(queue.ledger.resources()) == 2
    queue.ledger.validate()
    assert queue.ledger.release(reservation(held), queue.at)


def test_a_server_named_twice_in_one_registration_is_one_server() -> None:
    queue = Queue()
    first, second = queue.add(server(0), server(0, "mugs"))
    assert first.resource_id == second.resource_id
    assert [one.spec.compatible_task for one in queue.ledger.resources().values()] == [frozenset({"mugs"})]


# One address is one server.


def two_pools(*hosts: str) -> tuple[Queue, Job, Job]:
    """A queue in which pools `a` and `b` name one server, and each has a running job."""
    queue = Queue()
    for pool, host in zip("ab", hosts or ("gpu-1", "gpu-1"), strict=True):
        queue.add(ResourceSpec(pool, host, 80, body=f'{{"for":"{pool}"}}'))
    queue.submit(spec("a", "a", pool="a"), spec("b", "b", pool="b"))
    one, other = queue.claim(count=2)
    return queue, one, other


def test_a_server_that_two_pools_name_is_lent_once_at_a_time() -> None:
    queue, one, other = two_pools()
    held = queue.reserved(one)
    ticket = queue.waits(other)
    assert list(queue.ledger.resources()) == ["a/0"]
    queue.ledger.release(reservation(held), queue.at)
    settled = queue.settle()[ticket]
    assert isinstance(settled, Reserved)
    assert (settled.resource.resource_id, settled.resource.epoch, settled.spec.body) == ("a/0", 2, '{"for":"b"}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gpu-1.example.com", "GPU-1.Example.COM"),
        ("gpu-1.example.com", "gpu-1.example.com."),
        ("127.0.0.1", "localhost"),
        ("127.0.0.1", "::1"),
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("10.0.0.1", "0x0a000001"),
    ],
)
def test_spellings_of_one_address_are_one_server(one: str, other: str) -> None:
    queue, _, _ = two_pools(one, other)
    (server,) = queue.ledger.resources().values()
    assert [spec.host for spec in server.specs] == [one, other]


@pytest.mark.parametrize(
    ("one", "other"), [("gpu-1", "gpu-1.example.com"), ("127.0.0.1", "127.0.0.2"), ("10.0.0.1", "gpu-1")]
)
def test_names_that_may_mean_two_machines_are_two_servers(one: str, other: str) -> None:
    queue, _, _ = two_pools(one, other)
    assert list(queue.ledger.resources()) == ["a/0", "b/0"]


def test_ports_of_one_host_are_servers_of_their_own() -> None:
    queue = Queue()
    queue.add(ResourceSpec("a", "gpu-1", 80), ResourceSpec("b", "gpu-1", 81))
    assert list(queue.ledger.resources()) == ["a/0", "b/0"]


def test_each_pool_has_rules_of_its_own_for_a_server() -> None:
    queue = Queue()
    queue.add(server(0, "radio", pool="a"))
    queue.add(replace(server(0, "mugs", pool="a"), pool="b"))
    queue.submit(*(spec(f"{pool}-{task}", task=task, pool=pool) for pool in "ab" for task in ("radio", "mugs")))
    assert sorted(queue.ids(count=4)) == ["a-radio", "b-mugs"]


def test_a_server_is_drained_and_removed_for_all_of_its_pools() -> None:
    queue, one, other = two_pools()
    queue.ledger.change_resource("a/0", ResourceState.DRAINING, queue.at)
    assert queue.ledger.reserve(ref(other), queue.at) == NoneFree(ahead=0, serving=0)
    queue.ledger.change_resource("a/0", ResourceState.OPEN, queue.at)
    queue.ledger.remove_resource("a/0", queue.at)
    assert queue.ledger.reserve(ref(one), queue.at) == NoneFree(ahead=0, serving=0)
    assert [one.resource_id for one in queue.add(ResourceSpec("b", "gpu-1", 80))] == ["b/0"]
    queue.ledger.validate()


def earlier(*servers: Resource) -> Queue:
    """A queue whose store an earlier version has written, with a server for each pool that names one."""
    store = MemoryStore().own("earlier")
    jobs = [Job(spec(one.job_id, pool=one.spec.pool), n, 0.0) for n, one in enumerate(servers) if one.job_id]
    running = [
        job._replace(state=JobState.IN_PROGRESS, epoch=1, lease_id=f"l-{job.job_id}", worker="w", lease_s=90.0)
        for job in jobs
    ]
    store.commit(
        Changes(new_jobs={job.job_id: job for job in running}, resources={one.resource_id: one for one in servers})
    )
    store.close()
    return Queue(store)


def lent(pool: str, epoch: int, since: float) -> Resource:
    return Resource(
        ResourceSpec(pool, "gpu-1", 80), 0, epoch=epoch, lease_id=f"r-{pool}", job_id=f"job-{pool}", worker="w",
        lease_s=90.0, reserved_at=since,
    )  # fmt: skip


def test_servers_of_one_address_become_one_that_has_the_newest_epoch() -> None:
    free = Resource(ResourceSpec("c", "GPU-1", 80, frozenset({"mugs"})), 0, epoch=1)
    queue = earlier(lent("a", 1, 5.0), lent("b", 3, 9.0), free)
    (server,) = queue.ledger.resources().values()
    assert (server.resource_id, server.epoch, server.job_id, server.lease_id) == ("b/0", 3, "job-b", "r-b")
    assert [one.pool for one in server.specs] == ["b", "a", "c"]
    assert server.serves("c", "mugs")
    assert not server.serves("c", "radio")
    queue.ledger.validate()
    notes = [(one.what, one.resource_id, one.note) for one in queue.entries()]
    assert notes == [
        ("released", "a/0", "b/0 is the same server"),
        ("resource_removed", "a/0", "b/0 is the same server"),
        ("resource_changed", "b/0", "gpu-1:80 as a server of a"),
        ("resource_removed", "c/0", "b/0 is the same server"),
        ("resource_changed", "b/0", "GPU-1:80 as a server of c"),
    ]
    queue.restart()
    assert list(queue.ledger.resources().values()) == [server]
    assert not queue.ledger.changes


def test_of_two_reservations_of_one_address_the_earlier_one_goes_on() -> None:
    queue = earlier(lent("a", 1, 9.0), lent("b", 1, 5.0))
    assert [one.job_id for one in queue.ledger.resources().values()] == ["job-b"]
    renewed = queue.ledger.claims.renew(LeaseRef("job-a", "l-job-a", 1), queue.at)
    assert isinstance(renewed, Renewed)
    assert renewed.resource is None


def test_a_server_that_was_drained_for_one_pool_is_drained() -> None:
    drained = Resource(ResourceSpec("b", "gpu-1", 80), 0, ResourceState.DRAINING, epoch=1, note="new GPU")
    queue = earlier(lent("a", 2, 5.0), drained)
    assert [(one.state, one.note) for one in queue.ledger.resources().values()] == [("draining", "new GPU")]


def test_the_number_of_a_removed_server_is_never_used_again() -> None:
    queue, _ = queue_of(2, 0)
    queue.ledger.remove_resource(f"{POOL}/1", queue.at)
    assert [one.index for one in queue.add(server(5))] == [2]
    queue.ledger.remove_resource(f"{POOL}/2", queue.at)
    queue.commit()
    queue.restart()
    assert [one.index for one in queue.add(server(5), server(6, pool="other"))] == [3, 0]


def test_a_server_in_use_is_removed_by_force_alone() -> None:
    queue, (job, waiting) = queue_of(1, 2)
    held = queue.reserved(job)
    queue.waits(waiting)
    with pytest.raises(WrongStateError, match=f"used by job '{job.job_id}'"):
        queue.ledger.remove_resource(held.resource_id, queue.at)
    queue.ledger.remove_resource(held.resource_id, queue.at, even_if_held=True)
    assert queue.settle() == {}
    assert queue.ledger.resources() == {}
    assert queue.state(job.job_id) is JobState.IN_PROGRESS
    assert not queue.ledger.release(reservation(held), queue.at)
    queue.add(server(9))
    assert len(queue.settle()) == 1
    assert [one.what for one in queue.entries(Happening.RELEASED, Happening.RESOURCE_REMOVED)] == [
        "released",
        "resource_removed",
    ]


def test_servers_that_nobody_registered_are_unknown() -> None:
    queue = Queue()
    with pytest.raises(UnknownResourceError, match="'robots/0'"):
        queue.ledger.change_resource(f"{POOL}/0", ResourceState.OPEN, queue.at)
    with pytest.raises(UnknownResourceError, match="'robots/0'"):
        queue.ledger.remove_resource(f"{POOL}/0", queue.at)


def test_settled_tickets_are_told_once() -> None:
    queue, (busy, waiting) = queue_of(1, 2)
    held = queue.reserved(busy)
    queue.waits(waiting)
    queue.ledger.release(reservation(held), queue.at)
    (settled,) = queue.ledger.settle(queue.at)
    assert isinstance(settled, Settled)
    assert queue.ledger.settle(queue.at) == []


def test_a_server_taken_back_is_free_unless_its_worker_asked_again() -> None:
    queue, (first, second) = queue_of(2, 2)
    lost, kept = queue.reserved(first), queue.reserved(second)
    queue.reserved(second)
    for resource in (lost, kept, lost):
        queue.ledger.servers.take_back(resource, queue.at)
    assert [one.is_free for one in queue.ledger.resources().values()] == [True, False]
    queue.ledger.validate()


def test_a_wait_needs_no_write() -> None:
    queue, (busy, waiting) = queue_of(1, 2)
    queue.reserved(busy)
    queue.commit()
    assert isinstance(queue.ledger.reserve(ref(waiting), queue.at, wait=True), Waiting)
    assert not queue.ledger.changes
