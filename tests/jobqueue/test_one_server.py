"""One address is one server, whoever names it and however: it is never lent twice, and survives files as it is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headgate.jobqueue import (
    Changes,
    ClaimRequest,
    Completion,
    Instant,
    JobQuery,
    JobState,
    LeaseRef,
    Ledger,
    Reserved,
    ResourceSpec,
    Store,
)
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator import imported_jobs, legacy_documents, resources_of
from headgate.jobqueue.outcomes import ReservationRef
from headgate.jobqueue.resource import Resource
from headgate.jobqueue.server import legacy
from headgate.jobqueue.stores import MemoryStore, open_store
from headgate.jobqueue.wire import JobIn
from headgate.jobqueue.wire_servers import ResourceIn
from headgate_bench.postgres import PrivatePostgres
from tests.jobqueue.ledger.machine import FRESH

HOSTS = ("gpu-1", "GPU-1", "gpu-1.", "gpu-2", "127.0.0.1", "localhost", "[::1]", "10.0.0.1", "::ffff:10.0.0.1")
MACHINES = {"GPU-1": "gpu-1", "gpu-1.": "gpu-1", "127.0.0.1": "localhost", "[::1]": "localhost"} | {
    "::ffff:10.0.0.1": "10.0.0.1"
}
OLD = legacy.Holder("old")
TASKS = st.sampled_from(["radio", "mugs"])
TYPES = st.sampled_from(["a", "a_1", "a_2", "b_1", "b", "x"])
PAYLOADS = st.fixed_dictionaries(
    {}, optional={"team": st.sampled_from(["A", "B", "A 1"]), "task": TASKS, "more": st.integers(0, 9)}
)
ODD_PAYLOADS = PAYLOADS | st.just({"task": 5}) | st.just({"team_slug": "b", "team": None})
SERVERS = st.fixed_dictionaries(
    {"host": st.sampled_from(HOSTS), "port": st.integers(1, 2)},
    optional={"compatible_task": TASKS, "not_compatible_task": st.lists(TASKS, max_size=1), "gpu": st.integers(0, 9)},
)
JOB_FILES = st.lists(
    st.fixed_dictionaries(
        {"payload": PAYLOADS, "resource_type": TYPES, "status": st.sampled_from(["pending", "done"])}
    ),
    max_size=4,
)
SERVER_FILES = st.dictionaries(TYPES, st.lists(SERVERS, min_size=1, max_size=3), max_size=3)
SUBMITTED = st.fixed_dictionaries(
    {"team": st.sampled_from(["a", "b", "default", "Ü b"]), "task": TASKS, "payload": ODD_PAYLOADS},
    optional={"pool": TYPES, "resource_type": TYPES, "priority": st.integers(0, 1), "instance": TASKS},
)


def machine_of(spec: ResourceSpec) -> tuple[str, int]:
    return MACHINES.get(spec.host, spec.host), spec.port


class OneServer(RuleBasedStateMachine):
    """Invariant: of all reservations that were ever told to anyone, at most one for each machine is still good."""

    def __init__(self, fresh: FRESH) -> None:
        super().__init__()
        self._open = ExitStack()
        self.store = self._open.enter_context(fresh()).own("test")
        self.at = Instant(0.0, 1_700_000_000.0)
        self.names = count()
        self.claims: list[LeaseRef] = []
        self.lent: dict[ReservationRef, tuple[str, int]] = {}
        self.files: list[tuple[Any, Any]] = []

    @initialize(specs=st.lists(SERVERS, max_size=4), held=st.booleans())
    def a_queue_of_an_earlier_version(self, specs: list[dict[str, Any]], held: bool) -> None:
        """Each pool had a server of its own for one address, lent to a job of its own."""
        old = [ResourceIn(pool=f"p{number}", **body).spec for number, body in enumerate(specs)]
        self.store.commit(
            Changes(
                resources={
                    f"{spec.pool}/0": Resource(
                        spec, 0, epoch=1, lease_id=f"{n}", job_id=f"gone-{n}", worker="w", lease_s=60, reserved_at=n
                    )
                    if held
                    else Resource(spec, 0, epoch=n)
                    for n, spec in enumerate(old)
                }
            )
        )
        self.load()
        self.lent = {
            ReservationRef(one.resource_id, one.lease_id, one.epoch): machine_of(one.spec)
            for one in self.ledger.resources().values()
            if one.lease_id
        }
        named = Counter((spec.pool, machine_of(spec)) for one in self.ledger.resources().values() for spec in one.specs)
        assert named == Counter((spec.pool, machine_of(spec)) for spec in old)

    def load(self) -> None:
        self.ledger = Ledger(self.store, self.at)

    def teardown(self) -> None:
        self.store.close()
        self._open.close()

    # Ways in.

    @rule(jobs=JOB_FILES, servers=SERVER_FILES)
    def import_files(self, jobs: list[dict[str, Any]], servers: dict[str, Any]) -> None:
        jobs = [{"id": f"job-{next(self.names)}", **job} for job in jobs]
        try:
            resources_of(servers, [job.spec for job in imported_jobs(jobs)])
        except InvalidJobError:
            return  # one pool lists a server twice
        self.files.append((jobs, servers))
        self.take_in(jobs, servers)

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def import_files_again(self, data: st.DataObject) -> None:
        self.take_in(*data.draw(st.sampled_from(self.files)))

    def take_in(self, jobs: Any, servers: Any) -> None:
        imported = imported_jobs(jobs)
        self.ledger.adopt(imported, self.at)
        self.ledger.add_resources(resources_of(servers, [job.spec for job in imported]), self.at)

    @rule(servers=st.lists(st.tuples(TYPES, SERVERS | SERVERS.map(lambda s: s | {"compatible_task": []})), max_size=3))
    def register(self, servers: list[tuple[str, dict[str, Any]]]) -> None:
        specs = [ResourceIn(pool=pool, **body).spec for pool, body in servers]
        self.ledger.add_resources(specs, self.at)

    @rule(jobs=st.lists(SUBMITTED, min_size=1, max_size=3))
    def submit(self, jobs: list[dict[str, Any]]) -> None:
        self.ledger.submit([JobIn(id=f"job-{next(self.names)}", **job).spec for job in jobs], self.at)

    # Workers.

    @rule(jobs=st.integers(1, 4))
    def claim(self, jobs: int) -> None:
        for job in self.ledger.claims.claim(ClaimRequest("w", jobs, 60.0), self.at):
            self.claims.append(LeaseRef(job.job_id, job.lease_id, job.epoch))

    @rule()
    def claim_by_the_legacy_protocol(self) -> None:
        job = legacy.take(self.ledger, OLD, None, 60.0, self.at)
        if job is not None:
            kind = legacy.type_of(job)
            outcome = legacy.reserve_held(self.ledger, kind, OLD, job.job_id, 60.0, self.at, wait=False)
            self.told(outcome)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), wait=st.booleans())
    def reserve(self, data: st.DataObject, wait: bool) -> None:
        ref = data.draw(st.sampled_from(self.claims))
        job = self.ledger.job(ref.job_id)
        if job is not None and job.spec.pool:
            self.told(self.ledger.reserve(ref, self.at, wait=wait))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), keep_server=st.booleans())
    def complete(self, data: st.DataObject, keep_server: bool) -> None:
        ref = data.draw(st.sampled_from(self.claims))
        self.ledger.claims.complete(ref, Completion(), self.at, keep_server=keep_server)

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.ledger.release(data.draw(st.sampled_from(list(self.lent))), self.at)

    @rule()
    def settle(self) -> None:
        for settled in self.ledger.settle(self.at):
            self.told(settled.outcome)

    @rule()
    def leases_end(self) -> None:
        self.at = self.at._replace(now=self.at.now + 61.0)
        self.ledger.expire(self.at)

    @rule()
    def restart(self) -> None:
        self.store.commit(self.ledger.changes)
        self.load()

    def told(self, outcome: object) -> None:
        if isinstance(outcome, Reserved):
            one = outcome.resource
            self.lent[ReservationRef(one.resource_id, one.lease_id, one.epoch)] = machine_of(outcome.spec)

    # Files.

    @rule()
    def export_and_import(self) -> None:
        self.store.commit(self.ledger.changes)
        self.ledger.committed()
        with closing(self.store.reader()) as reader:
            jobs = reader.jobs(JobQuery(limit=10_000))
        specs = [spec for one in self.ledger.resources().values() for spec in one.specs]
        written, listed = json.loads(json.dumps(legacy_documents(jobs, specs)))
        imported = imported_jobs(written)
        read = resources_of(listed, [job.spec for job in imported])

        fresh = Ledger(MemoryStore().own("fresh"), self.at)
        fresh.adopt(imported, self.at)
        fresh.add_resources(read, self.at)
        for job in jobs:
            again = fresh.job(job.job_id)
            assert again is not None
            assert (again.spec, again.state is JobState.DONE) == (job.spec, job.state is JobState.DONE)
        assert {frozenset(one.specs) for one in fresh.resources().values()} == {
            frozenset(one.specs) for one in self.ledger.resources().values()
        }

        self.ledger.adopt(imported, self.at)
        self.ledger.add_resources(read, self.at)
        assert not self.ledger.changes

    @invariant()
    def no_server_is_lent_to_two_holders(self) -> None:
        good = [machine for ref, machine in self.lent.items() if self.ledger.servers.named(ref) is not None]
        assert len(good) == len(set(good)), good

    @invariant()
    def each_machine_is_one_server(self) -> None:
        machines = [{machine_of(spec) for spec in one.specs} for one in self.ledger.resources().values()]
        assert all(len(of_one) == 1 for of_one in machines)
        assert len({next(iter(of_one)) for of_one in machines}) == len(machines)
        self.ledger.validate()


def _run(fresh: FRESH, runs: int) -> None:
    run_state_machine_as_test(
        lambda: OneServer(fresh), settings=settings(max_examples=runs, stateful_step_count=25, deadline=None)
    )


def test_in_sqlite() -> None:
    _run(lambda: nullcontext(MemoryStore()), 40)


@pytest.mark.slow
def test_in_postgres(postgres_server: PrivatePostgres) -> None:
    @contextmanager
    def fresh() -> Iterator[Store]:
        with postgres_server.fresh_database() as url:
            yield open_store(url)

    _run(fresh, 5)
