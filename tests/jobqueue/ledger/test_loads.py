"""How many jobs a server has ahead of it, and so whose job is next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.jobqueue import Job
from headgate.jobqueue.job import Lane
from headgate.jobqueue.matching import Loads
from headgate.jobqueue.resource import Resource, ResourceState
from tests.jobqueue.ledger.queue import POOL, server, spec


def job(job_id: str, task: str = "radio", pool: str = POOL) -> Job:
    return Job(spec(job_id, task=task, pool=pool), 0, 0.0)


def lane(task: str = "radio", pool: str = POOL) -> Lane:
    return Lane("team", pool, task)


ANYTHING = Resource(server(0), 0)
ONLY_RADIO = Resource(server(1, "radio"), 1)


@pytest.fixture
def loads() -> Loads:
    loads = Loads()
    loads.put(ANYTHING)
    loads.put(ONLY_RADIO)
    return loads


def test_a_lane_has_as_many_jobs_ahead_as_its_least_loaded_server(loads: Loads) -> None:
    assert (loads.of(lane("radio")), loads.of(lane("mugs"))) == (0, 0)
    loads.started(job("1", "mugs"))
    assert (loads.of(lane("radio")), loads.of(lane("mugs"))) == (0, 1)
    loads.started(job("2", "mugs"))
    assert (loads.of(lane("radio")), loads.of(lane("mugs"))) == (0, 2)
    loads.started(job("3", "radio"))
    assert loads.of(lane("radio")) == 1
    loads.validate()


def test_a_job_is_counted_on_the_server_that_it_really_got(loads: Loads) -> None:
    loads.started(job("1"))
    loads.reserved("1", ONLY_RADIO.resource_id)
    assert (loads.of(lane("mugs")), loads.of(lane("radio"))) == (0, 0)
    loads.reserved("1", ANYTHING.resource_id)
    assert loads.of(lane("mugs")) == 1
    loads.ended(job("1"))
    assert loads.of(lane("mugs")) == 0
    loads.validate()


def test_a_lane_that_no_open_server_serves_has_no_load(loads: Loads) -> None:
    assert loads.of(lane(pool="nobody's")) is None
    loads.put(replace(ANYTHING, state=ResourceState.DRAINING))
    assert loads.of(lane("mugs")) is None
    assert loads.of(lane("radio")) == 0
    loads.put(ANYTHING)
    assert loads.of(lane("mugs")) == 0


def test_a_server_with_new_rules_serves_by_them_and_keeps_its_load(loads: Loads) -> None:
    loads.reserved("1", ANYTHING.resource_id)
    assert loads.serving(POOL, "mugs") == [ANYTHING.resource_id]
    loads.put(replace(ANYTHING, spec=server(0, "doors")))
    assert loads.serving(POOL, "mugs") == []
    assert loads.of(lane("doors")) == 1
    assert [one.index for one in loads.pool(POOL)] == [0, 1]
    loads.validate()


def test_jobs_without_a_pool_are_counted_by_team(loads: Loads) -> None:
    assert loads.of(lane(pool="")) == 0
    loads.started(job("1", pool=""))
    assert loads.of(lane("anything", pool="")) == 1
    loads.ended(job("1", pool=""))
    assert loads.of(lane(pool="")) == 0


def test_jobs_on_a_server_of_two_pools_are_ahead_of_those_of_both(loads: Loads) -> None:
    loads.put(replace(ANYTHING, also=(server(0, pool="others"),)))
    loads.started(job("1", "mugs"))
    assert loads.of(lane("radio", pool="others")) == 1
    loads.started(job("2", "radio", pool="others"))
    assert loads.of(lane("mugs")) == 2
    loads.validate()
    loads.remove(replace(ANYTHING, also=(server(0, pool="others"),)))
    assert (loads.of(lane("mugs")), loads.of(lane("radio", pool="others"))) == (None, None)
    loads.validate()


def test_a_teams_share_is_its_jobs_for_each_open_server_of_the_pool(loads: Loads) -> None:
    assert (loads.share("team", POOL), loads.share("team", "")) == (0.0, 0.0)
    loads.started(job("1"))
    assert (loads.share("team", POOL), loads.share("other", POOL)) == (0.5, 0.0)
    loads.put(replace(ANYTHING, state=ResourceState.DRAINING))
    assert loads.share("team", POOL) == 1.0
    loads.ended(job("1"))
    assert loads.share("team", POOL) == 0.0


def test_a_removed_server_takes_its_counts_along(loads: Loads) -> None:
    loads.started(job("1"))
    loads.reserved("1", ANYTHING.resource_id)
    loads.remove(ANYTHING)
    assert loads.of(lane("mugs")) is None
    loads.ended(job("1"))
    loads.validate()
    loads.put(ANYTHING)
    assert loads.of(lane("mugs")) == 0


def test_a_job_that_no_server_serves_any_more_is_counted_when_it_gets_one(loads: Loads) -> None:
    loads.started(job("1", "mugs", pool="late"))
    late = Resource(server(0, pool="late"), 0)
    loads.put(late)
    loads.reserved("1", late.resource_id)
    assert loads.of(lane("mugs", pool="late")) == 1
    loads.validate()
