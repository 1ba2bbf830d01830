"""Lines that fail, clocks that are set, servers that stand still and databases that go: job queues lose nothing."""

from __future__ import annotations

import json
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable

import httpx
import psycopg
import pytest

from headgate.jobqueue import Happening, JobSpec
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.worker import RetryPolicy, SyncJobQueueClient
from headgate_bench.postgres import PrivatePostgres
from tests.chaos.queue_fixtures import chaos_postgres, nursery, place, postgres_place, sqlite_place
from tests.chaos.queue_place import QueuePlace, Verdict
from tests.chaos.queue_proxy import proxy_before

__all__ = ["chaos_postgres", "nursery", "place", "postgres_place", "sqlite_place"]

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

HOUR_S = 3600


def test_a_line_that_delays_cuts_repeats_and_loses_lets_every_job_be_done_once(
    place: QueuePlace, kills: int, chaos_seed: int, record_property: Callable[[str, object], None]
) -> None:
    place.speed, place.lease_s = 1.0, 60.0
    place.start_server()
    place.register(servers=3)
    with proxy_before(place.port, random.Random(chaos_seed), share=0.25) as proxy:
        workers = [place.start_worker(url=proxy.url, load_s=0.01, run_s=0.02) for _ in range(4)]
        place.submit(20 * kills, max_attempts=1)
        place.until_all_ended(60 + 10 * kills)
        for worker in workers:
            worker.kill()
    verdict = place.judge()
    place.assert_kept(verdict)
    claims = sum(times for (_, path), times in proxy.faults.items() if path == "claims")
    assert sum(verdict.executions().values()) - len(verdict.jobs) <= claims
    begun = [fact["job_id"] for fact in place.facts() if fact["what"] == Happening.CLAIMED]
    assert sorted(begun) == sorted(place.submitted), "a job was worked on twice"
    for one in proxy.repeated:
        first, second = one.answers
        if one.path == "complete":
            assert (first.status, second.status) == (200, 200)
            assert {json.loads(answer.body)["status"] for answer in one.answers} <= {"done", "repeated"}
        elif one.path == "claims":
            assert first == second
        else:
            assert second.status in (200, 409), one
    record_property("faults", {f"{fault}: {path}": times for (fault, path), times in sorted(proxy.faults.items())})
    record_property("sent more than once", len(proxy.repeated))


def test_setting_the_wall_clock_ends_no_lease(sqlite_place: QueuePlace, kills: int) -> None:
    place = sqlite_place
    place.start_server()
    place.register(servers=4)
    place.submit(60, max_attempts=1)
    for _ in range(4):
        place.start_worker()
    for step in (HOUR_S, -HOUR_S, 0) * min(max(kills, 2), 5):
        before = place.amount_told()
        place.steps.write_text(str(step))
        place.keep_fed(20)
        place.until(lambda before=before: place.amount_told() > before, 20)
        time.sleep(0.2)
    place.until_all_ended(60)
    verdict = place.judge()
    place.assert_kept(verdict)
    assert verdict.count(Happening.EXPIRED) == verdict.count(Happening.RESERVATION_EXPIRED) == 0
    at = [entry.at for entry in verdict.entries]
    assert max(at) - min(at) > 2 * HOUR_S


def test_a_server_that_stands_still_for_longer_than_the_leases_ends_none(
    sqlite_place: QueuePlace, kills: int, chaos_seed: int
) -> None:
    place = sqlite_place
    rng = random.Random(chaos_seed)
    place.start_server()
    place.register(servers=4)
    place.submit(4, max_attempts=1)
    holders = [place.start_holder(renews=place.real_lease_s / 3) for _ in range(4)]
    for holder in holders:
        place.until(lambda holder=holder: len(place.facts(holder.name)) > 1, 20)
    assert place.server is not None
    for _ in range(kills):
        place.server.send(signal.SIGSTOP)
        time.sleep(place.real_lease_s * rng.uniform(0.8, 1.3))
        place.server.send(signal.SIGCONT)
        time.sleep(place.real_lease_s * rng.uniform(0.1, 0.5))
    place.go.touch()
    for holder in holders:
        assert holder.has_ended(20), place.said()
        answers = {fact["what"]: fact for fact in place.facts(holder.name)}
        assert (answers["renewal"]["status"], answers["completion"]["status"]) == ("renewed", 200)
    verdict = place.judge()
    place.assert_kept(verdict)
    assert verdict.count(Happening.EXPIRED) == verdict.count(Happening.RESERVATION_EXPIRED) == 0


def _cut_off(server: PrivatePostgres, database: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (database,))


def _assert_only_workers_charge_attempts(verdict: Verdict) -> None:
    """A job has lost the attempts that its workers said had failed, and none to the database."""
    said = Counter(entry.job_id for entry in verdict.entries if entry.what is Happening.FAILED)
    assert {job.job_id: job.failures for job in verdict.jobs if job.failures} == dict(said)


def _status_of_a_claim(place: QueuePlace) -> tuple[int, str]:
    answer = httpx.post(f"{place.url}/v1/claims", json={"worker": "asks", "teams": ["nobody's"]}, timeout=30)
    return answer.status_code, answer.json().get("code", "")


@pytest.mark.long
def test_a_database_server_that_is_cut_off_and_restarted_loses_nothing(
    postgres_place: QueuePlace, chaos_postgres: PrivatePostgres, kills: int
) -> None:
    place = postgres_place
    place.speed, place.lease_s = 1.0, 60.0
    place.start_server()
    place.register(servers=3)
    for _ in range(4):
        place.start_worker(ends=True, load_s=0.01, run_s=0.05)
    place.submit(200)
    for number in range(min(kills, 20)):
        before = place.amount_told()
        place.until(lambda before=before: place.amount_told() > before, 60)
        if number % 2:
            _cut_off(chaos_postgres, place.database.rsplit("/", 1)[-1])
        else:
            chaos_postgres.stop(immediately=True)
            place.until(lambda: _status_of_a_claim(place) == (503, "jobqueue_store_failed"), 20)
            chaos_postgres.start()
        place.until(lambda: _status_of_a_claim(place)[0] == 200, 20)
        place.keep_fed(60)
    place.until_all_ended(120)
    verdict = place.judge()
    place.assert_kept(verdict)
    assert verdict.count(Happening.EXPIRED) == 0
    _assert_only_workers_charge_attempts(verdict)


def test_a_full_disk_refuses_with_503_and_everything_goes_on_when_there_is_room(
    sqlite_place: QueuePlace, kills: int
) -> None:
    place = sqlite_place
    place.speed, place.lease_s = 1.0, 60.0
    place.start_server()
    place.register(servers=3)
    for _ in range(3):
        place.start_worker(ends=True, load_s=0.01, run_s=0.05)
    place.submit(100)
    refused: list[str] = []
    assert place.server is not None
    for number in range(kills):
        before = place.amount_told()
        place.until(lambda before=before: place.amount_told() > before, 60)
        resource.prlimit(place.server.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        with SyncJobQueueClient(place.url, retry=RetryPolicy(patience_s=0)) as client:
            for name in (f"live-refused-{number}-{n}" for n in range(3)):
                with pytest.raises(StoreFailedError):
                    client.submit([JobSpec(name, "live", "t")])
                refused.append(name)
        resource.prlimit(place.server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        place.keep_fed(30)
    place.until_all_ended(120)
    verdict = place.judge()
    place.assert_kept(verdict)
    assert {job.job_id for job in verdict.jobs}.isdisjoint(refused)
    assert verdict.count(Happening.EXPIRED) == 0
    _assert_only_workers_charge_attempts(verdict)
