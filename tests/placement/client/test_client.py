"""Drivers, the ledger's actor and Ray together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from headgate.core import ReleaseOutcome
from headgate.core.audit import audit_entries
from headgate.core.errors import NotFoundError
from headgate.placement.amounts import amounts
from headgate.placement.cluster.actor import LEDGER_NAME
from headgate.placement.cluster.client import Placement, connect
from headgate.placement.cluster.pools import PlacementPool
from headgate.placement.cluster.work import PlacedWork
from headgate.placement.errors import (
    CannotFitError,
    InvalidPlacementError,
    PlacementLostError,
    UnknownPoolError,
    WorkFailedError,
)
from tests.placement.client.works import Counts, Doubles, Keeps, Raises, Serves

pytestmark = pytest.mark.slow

ONE = amounts(cpu=1)
SOON_S = 30
ROOT = Path(__file__).parents[3]


def test_work_gives_its_result(pool: PlacementPool) -> None:
    assert pool.submit(Doubles, 21, resources=ONE, priority=9).result(SOON_S) == 42
    assert pool.submit(ray.remote(Doubles), kwargs={"number": 4}, resources=ONE).result(SOON_S) == 8


def test_work_that_raises_gives_its_exception_as_the_cause(pool: PlacementPool) -> None:
    with pytest.raises(WorkFailedError, match="ValueError: no data") as failed:
        pool.submit(Raises, resources=ONE).result(SOON_S)
    assert isinstance(failed.value.__cause__, ValueError)


def test_the_same_id_again_is_the_same_work(pool: PlacementPool, placement: Placement) -> None:
    first = pool.submit(Doubles, 1, resources=ONE, request_id="same")
    again = pool.submit(Doubles, 2, resources=ONE, request_id="same")
    assert (first.result(SOON_S), again.result(SOON_S), placement.work("same").result(SOON_S)) == (2, 2, 2)


def test_a_pool_of_all_that_the_cluster_has_grows_when_a_node_joins_and_another_pool_does_not(
    placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement.pool("fixed", quota=ONE)
    quotas = []
    for has in ({"CPU": 1}, {"CPU": 2, "GPU": 1}, {"CPU": 2}):
        monkeypatch.setattr(ray, "cluster_resources", lambda has=has: has)
        quotas.append(placement.pool_or_whole("whole", reuse=False).pool.quota)
    assert quotas == [ONE, amounts(cpu=2, gpu=1), amounts(cpu=2, gpu=1)], "it lost a node, which comes back"
    assert placement.pool_or_whole("fixed").pool.quota == ONE
    for name in ("whole", "fixed"):
        placement.close_pool(name)


def test_threads_of_a_driver_share_one_connection(pool: PlacementPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        results = threads.map(lambda n: pool.submit(Doubles, n, resources=ONE).result(SOON_S), range(16))
        assert list(results) == [2 * n for n in range(16)]


@pytest.mark.parametrize("own_process", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_object_is_kept_for_calls_until_it_is_completed(pool: PlacementPool, own_process: bool) -> None:
    work = pool.submit(Serves, "hello", resources=ONE, method=None, own_process=own_process)
    work.wait_running(SOON_S)
    assert ray.get(work.handle.greet.remote("you"), timeout=SOON_S) == "hello you"
    assert ray.get(work.call("greet", name="me"), timeout=SOON_S) == "hello me"
    assert work.complete() is ReleaseOutcome.RELEASED
    assert work.result(SOON_S) is None
    with pytest.raises(PlacementLostError):
        work.call("greet", "you")


def test_a_gang_gives_a_result_for_each_member(pool: PlacementPool) -> None:
    assert pool.submit(Doubles, 3, bundles=[ONE, ONE]).result(SOON_S) == [6, 6]


def _until_it_counts(work: PlacedWork) -> None:
    work.wait_running(SOON_S)
    deadline = time.monotonic() + SOON_S
    while not ray.get(work.call("counted"), timeout=SOON_S):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_victim_goes_on_from_its_state(pool: PlacementPool, placement: Placement) -> None:
    before = placement.stats()["total_preemptions"]
    victim = pool.submit(Keeps, resources=amounts(cpu=2), priority=2)
    _until_it_counts(victim)
    assert pool.submit(Doubles, 1, resources=amounts(cpu=2), priority=7).result(SOON_S) == 2
    victim.wait_running(SOON_S)
    ray.get(victim.call("end"), timeout=SOON_S)
    began_with, count = victim.result(SOON_S)
    assert 0 < began_with <= count
    view = victim.view()
    assert (view.preemptions, view.losses) == (1, 0)
    assert placement.stats()["total_preemptions"] == before + 1


def test_state_handlers_of_a_pool_serve_classes_without_methods(pool: PlacementPool) -> None:
    def restore(work: Counts, state: int) -> None:
        work.count = work.began_with = state

    pool.state_handlers(save=lambda work: work.end(), restore=restore)
    victim = pool.submit(Counts, resources=amounts(cpu=2), priority=2)
    _until_it_counts(victim)
    pool.submit(Doubles, 1, resources=amounts(cpu=2), priority=7).result(SOON_S)
    victim.wait_running(SOON_S)
    ray.get(victim.call("end"), timeout=SOON_S)
    assert victim.result(SOON_S)[0] > 0


def test_a_lease_holds_a_place_for_tasks_and_is_given_back_once(pool: PlacementPool) -> None:
    with pool.lease(resources=ONE, timeout=SOON_S) as lease:
        task = ray.remote(num_cpus=1, scheduling_strategy=lease.strategy())(lambda: 7)
        assert ray.get(task.remote(), timeout=SOON_S) == 7
        assert lease.saved()
        assert lease.release() is ReleaseOutcome.RELEASED
    assert lease.release() is ReleaseOutcome.DUPLICATE


def test_a_lease_that_is_taken_away_says_so(pool: PlacementPool) -> None:
    told = threading.Event()
    with pool.lease(resources=amounts(cpu=2), priority=1, timeout=SOON_S, on_lost=told.set) as lease:
        winner = pool.submit(Doubles, 1, resources=amounts(cpu=2), priority=9)
        assert lease.lost.wait(SOON_S)
        assert told.wait(SOON_S)
        with pytest.raises(PlacementLostError, match="preemption"):
            lease.strategy()
        assert winner.result(SOON_S) == 2
        assert lease.wait(SOON_S), "it stood in line again and holds a place anew"
        assert not lease.is_lost


def test_what_cannot_be_used_is_refused_with_a_sentence(pool: PlacementPool, placement: Placement) -> None:
    with pytest.raises(CannotFitError):
        pool.submit(Doubles, 1, resources=amounts(cpu=3))
    with pytest.raises(InvalidPlacementError, match="Work is a class"):
        pool.submit(Doubles(1), resources=ONE)
    with pytest.raises(InvalidPlacementError, match="no method 'go'"):
        pool.submit(Doubles, 1, resources=ONE, method="go")
    with pytest.raises(InvalidPlacementError, match="cannot be sent"):
        pool.submit(Doubles, threading.Lock(), resources=ONE)
    with pytest.raises(InvalidPlacementError, match="another quota"):
        placement.pool("rlhf", quota=amounts(cpu=1), reserved=[ONE])
    with pytest.raises(UnknownPoolError, match="rlhf"):
        placement.pool("other")
    with pytest.raises(NotFoundError):
        placement.work("nobody")


def test_a_driver_that_comes_back_under_its_name_finds_its_work(pool: PlacementPool) -> None:
    with connect(driver="returning", keep_work=True) as first:
        work = first.pool("rlhf").submit(Counts, resources=ONE, request_id="long")
        work.wait_running(SOON_S)
    with connect(driver="returning") as second:
        again = second.work("long")
        ray.get(again.call("end"), timeout=SOON_S)
        assert again.result(SOON_S)[1] > 0
        assert again.view().epoch == 1


@pytest.mark.parametrize("how", ["kill -9", pytest.param("ray.kill", marks=pytest.mark.long)])
def test_work_survives_the_death_of_the_ledger(pool: PlacementPool, placement: Placement, how: str) -> None:
    runs = pool.submit(Counts, resources=amounts(cpu=2))
    waits = pool.submit(Doubles, 5, resources=ONE)
    runs.wait_running(SOON_S)
    before = placement.about()
    if how == "kill -9":
        os.kill(before["process_id"], signal.SIGKILL)
    else:
        ray.kill(ray.get_actor(LEDGER_NAME, namespace="headgate"), no_restart=False)
    ray.get(runs.call("end"), timeout=SOON_S)
    assert runs.result(SOON_S)[0] == 0
    assert waits.result(SOON_S) == 10
    assert placement.about()["generation"] == before["generation"] + 1
    assert (runs.view().epoch, waits.view().epoch) == (1, 1), "nothing was started twice"
    assert placement.audit() == ()


@pytest.mark.long
@pytest.mark.parametrize("how", ["dies", "is-terminated"])
def test_work_of_a_driver_that_ends_is_stopped(
    pool: PlacementPool, placement: Placement, ray_cluster: object, how: str
) -> None:
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "tests.placement.client.drivers", address, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "running\n"
        if how == "is-terminated":
            driver.terminate()
        view = placement.work(f"work-{how}").wait(SOON_S)
    assert view.stage == "withdrawn"
    assert view.note == ("its driver died" if how == "dies" else "its driver ended")


def test_pools_and_rules_that_change_are_in_the_audit_trail(placement: Placement, audit_file: Path) -> None:
    for quota in (1, 1, 2):
        placement.pool("audited", quota=amounts(cpu=quota), change=True)
    placement.set_rules(rules := placement.rules())
    placement.set_rules(replace(rules, min_runtime_s=1.0))
    placement.set_rules(rules)
    placement.close_pool("audited")
    assert [entry.what.removeprefix("placement ") for entry in audit_entries()] == [
        "open pool", "change pool", "set rules", "set rules", "close pool",
    ]  # fmt: skip


def test_the_audit_removes_what_nobody_knows_and_nothing_else(pool: PlacementPool, placement: Placement) -> None:
    leak = ray.util.placement_group([{"CPU": 1}], name="headgate-gone-d-1.1", lifetime="detached")
    foreign = ray.util.placement_group([{"CPU": 1}], name="somebody-else", lifetime="detached")
    assert leak.wait(SOON_S)
    assert foreign.wait(SOON_S)
    try:
        found = placement.audit()
        assert [(each.name, each.is_leak, each.fixed) for each in found] == [("headgate-gone-d-1.1", True, False)]
        assert [each.fixed for each in placement.audit(fix=True)] == [True]
        assert placement.audit() == ()
        assert ray.util.placement_group_table(foreign)["state"] == "CREATED"
    finally:
        ray.util.remove_placement_group(foreign)


def test_arguments_that_the_class_does_not_take_are_refused_before_anything_stops_for_it(pool: PlacementPool) -> None:
    says = r"Doubles\(number\) cannot be created from \(1, 'two'\): too many positional arguments"
    with pytest.raises(InvalidPlacementError, match=says):
        pool.submit(Doubles, 1, "two", resources=ONE)
    with pytest.raises(
        InvalidPlacementError, match=r"cannot be created from \(\): missing a required argument: 'number'"
    ):
        pool.submit(Doubles, resources=ONE)


def test_arguments_of_the_class_that_are_given_to_submit_are_told_where_they_go(pool: PlacementPool) -> None:
    with pytest.raises(InvalidPlacementError, match=r"no argument 'number'.*kwargs"):
        pool.submit(Doubles, resources=ONE, number=4)
    with pytest.raises(InvalidPlacementError, match="did you mean 'preemptible'"):
        pool.submit(Doubles, 4, resources=ONE, preemtible=False)
