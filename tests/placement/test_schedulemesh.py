"""ScheduleMesh's calls on a small Ray cluster: the four scenes of its example with a better ending, and refusals."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import cloudpickle
import pytest
import ray

from deployments.examples import rlhf_pool
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.schedulemesh import SimpleScheduler, SimpleTaskSpec

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.slow
RESERVED = 2


class Answers:
    def __init__(self, name: str, labels: dict[str, str], greeting: str = "hello", *, loud: bool = False) -> None:
        self.says = f"{greeting} {name} of {labels['pool']}{'!' if loud else ''}"

    def run(self) -> str:
        return self.says


class Stuck(Answers):
    def cancel(self, task_id: str) -> None:
        time.sleep(600)


class Broken:
    def __init__(self, name: str, labels: dict[str, str]) -> None:
        raise ValueError(f"no weights for {name}")


@pytest.fixture(scope="module")
def shared(ray_cluster: object) -> Iterator[SimpleScheduler]:
    scheduler = SimpleScheduler()
    yield scheduler
    scheduler.shutdown()


@pytest.fixture
def scheduler(shared: SimpleScheduler) -> Iterator[SimpleScheduler]:
    """One scheduler for all tests here, with 60 s to wait and no agents."""
    shared.scheduler.wait_s = 60.0
    yield shared
    for agent in shared.list_agents()["agents"]:
        assert shared.delete_agent(agent["task_id"])["success"]


def spec(task_id: str, cpu: float = 1.0, **more: object) -> SimpleTaskSpec:
    return SimpleTaskSpec(
        **{"task_id": task_id, "pool": "small", "actor_class": Answers, "resources": {"cpu": cpu}} | more
    )


def roles_running(scheduler: SimpleScheduler) -> list[str]:
    agents = scheduler.list_agents("rlhf-scenes")["agents"]
    return sorted(agent["labels"]["role"] for agent in agents if agent["status"] == "running")


def left_in_ray(pool: str) -> list[str]:
    """Names of groups of a pool and of actors of ours that are still there."""
    groups = [
        table["name"]
        for table in ray.util.placement_group_table().values()
        if table["name"].startswith(f"headgate-{pool}-") and table["state"] != "REMOVED"
    ]
    actors = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    return groups + [name for name in actors if pool in name or name == "trainer"]


@pytest.mark.long
def test_the_four_scenes_of_the_seed_end_better(ray_cluster: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlhf_pool, "POOL", pool := "rlhf-scenes")
    scheduler = SimpleScheduler()
    scenes = rlhf_pool.scenes(scheduler)

    next(scenes)
    groups = scheduler.pg_pool_stats(pool)
    assert (groups["high_priority_pgs"], groups["dynamic_pgs"], groups["allocated_pgs"]) == (RESERVED, 2, 2)

    next(scenes)
    assert scheduler.stats()["total_preemptions"] == 0
    assert scheduler.pg_pool_stats(pool)["allocated_pgs"] == 3

    next(scenes)  # the trainer's one submission succeeds without a fallback, and its victim is a rollout
    stats = scheduler.stats()
    assert (stats["total_preemptions"], stats["cross_pool_preemptions"]) == (1, 0)
    assert stats["recent_preemptions"][-1]["reason"] == "label_based_preemption"
    assert roles_running(scheduler) == ["reward", "rollout", "train"]
    assert ray.get_actor("trainer") is not None

    next(scenes)
    stats = scheduler.stats()
    assert (stats["total_preemptions"], stats["recent_preemptions"][-1]["reason"]) == (2, "same_pool_preemption")
    assert roles_running(scheduler) == ["reward", "rollout", "train"]

    next(scenes)  # raises unless each victim has run again to its last step
    assert scheduler.stats()["total_preemptions"] == 2
    assert scheduler.stats()["running_tasks"] == 0
    assert scheduler.pg_pool_stats(pool)["high_priority_pgs"] == RESERVED
    assert scheduler.scheduler.placement.audit() == ()

    scheduler.shutdown()
    assert left_in_ray(pool) == []


def test_answers_are_mappings_and_what_is_refused_leaves_nothing(scheduler: SimpleScheduler) -> None:
    assert scheduler.submit_spec(spec("early"))["reason"] == "unknown_pool"
    opened = scheduler.ensure_pool("small", resources={"cpu": 1.0}, labels={"team": "a"})
    assert (opened["success"], opened["pool"]["capacity"]["cpu"], opened["pool"]["labels"]) == (
        True,
        1.0,
        {"team": "a"},
    )
    assert scheduler.ensure_pool("small", resources={"cpu": 1.0})["success"]
    assert "quota" in scheduler.ensure_pool("small", resources={"cpu": 2.0})["error"]
    with pytest.raises(ValueError, match="exceeds pool quota"):
        scheduler.ensure_pool(
            "other", resources={"cpu": 1}, pg_pool_config={"enable": True, "high_priority_pg_specs": [{"cpu": 2}]}
        )
    with pytest.raises(InvalidPlacementError, match="cancel_timeot"):
        scheduler.configure_preemption(cancel_timeot=1)
    assert scheduler.submit_spec(spec("large", cpu=64.0))["reason"] == "cannot_fit"
    assert scheduler.complete("large") == {
        "success": False,
        "error": "Task 'large' not found",
        "reason": "unknown_task",
    }
    assert not scheduler.delete_agent("large")["success"]
    assert "actor_class" in scheduler.scheduler.submit_task_with_preemption(task_id="t", pool_name="p")["error"]
    assert scheduler.delete_agent("large", force=True)["success"]
    assert scheduler.list_agents()["agents"] == []

    broken = scheduler.submit_spec(spec("broken", actor_class=Broken))
    assert (broken["success"], broken["reason"]) == (False, "agent_creation_failed")
    assert "no weights for" in broken["error"]

    held = scheduler.submit_spec(
        spec("held", actor_args=["good day"], actor_kwargs={"loud": True}, agent_name="h", auto_register=False)
    )
    assert ray.get(held["agent"]["handle"].run.remote()) == "good day h of small!"
    pools = {pool["name"]: pool for pool in scheduler.list_pools()["pools"]}
    assert pools["small"]["available_resources"]["cpu"] == 0.0

    scheduler.scheduler.wait_s = 0.1
    late = scheduler.submit_spec(spec("late", priority=9))
    assert (late["success"], late["reason"]) == (False, "preemption_failed")
    assert "not preemptible" in str(late["why"])
    assert [agent["name"] for agent in scheduler.list_agents("small")["agents"]] == ["h"]
    scheduler.scheduler.wait_s = 60.0

    assert scheduler.delete_agent("h")["agent"]["status"] == "done"
    again = scheduler.submit(
        **{field: getattr(spec("held"), field) for field in ("task_id", "pool", "actor_class", "resources")}
    )
    assert again["success"]
    same = scheduler.submit_spec(spec("held"))  # it is there already, and not made twice
    assert same["agent"]["name"] == again["agent"]["name"]
    assert scheduler.complete("held")["outcome"] == "released"


@pytest.mark.long
def test_a_preemption_is_told_with_whether_the_victim_answered_its_cancel(scheduler: SimpleScheduler) -> None:
    scheduler.ensure_pool("small", resources={"cpu": 1.0})
    scheduler.configure_preemption(cancel_timeout=0.3)
    scheduler.scheduler.wait_s = 20.0
    for priority, (task_id, victim) in enumerate((("polite", Answers), ("stuck", Stuck), ("last", Answers)), start=1):
        assert scheduler.submit_spec(spec(task_id, actor_class=victim, priority=2 * priority))["success"]
    told = scheduler.stats()["recent_preemptions"][-2:]
    keys = ("task_id", "preemptor_task_id", "agent_name", "pool_name", "priority", "cancel_success", "reason")
    names = {agent["task_id"]: agent["name"] for agent in scheduler.list_agents()["agents"]}
    assert [tuple(each[key] for key in keys) for each in told] == [
        ("polite", "stuck", names["polite"], "small", 2, True, "same_pool_preemption"),
        ("stuck", "last", names["stuck"], "small", 4, False, "same_pool_preemption"),
    ]


@pytest.mark.long
def test_an_agent_is_made_ahead_of_any_task_and_stays_whatever_comes(scheduler: SimpleScheduler) -> None:
    pool = scheduler.scheduler
    pool.create_pool("agents", {}, {"cpu": 0.5}, target_agents=1)
    warm = pool.create_agent("warm", "agents", Answers, actor_args=["welcome"])
    assert ray.get(warm["agent"]["handle"].run.remote()) == "welcome warm of agents"
    assert pool.get_pool("agents")["pool"]["used_resources"]["cpu"] == 0.5
    assert pool.create_agent("warm", "agents", Answers)["reason"] == "agent_exists"
    assert pool.create_agent("wide", "agents", Answers, resources={"cpu": 9})["reason"] == "cannot_fit"
    assert pool.create_agent("lost", "nowhere", Answers)["reason"] == "missing_arguments"

    pool.wait_s = 0.1
    assert scheduler.submit_spec(spec("urgent", cpu=0.5, pool="agents", priority=9))["reason"] == "preemption_failed"
    assert pool.list_agents("agents")["agents"][0]["name"] == "warm"
