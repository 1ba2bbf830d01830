"""ScheduleMesh's settings and mappings, as rules and pools of Headgate."""

from __future__ import annotations

import pytest

from headgate.placement.amounts import amounts
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.rules import PreemptionRules
from headgate.placement.schedulemesh import PreemptionAggressiveness, SimpleScheduler, SimpleTaskSpec
from headgate.placement.schedulemesh.agent import actor_options, agent_class
from headgate.placement.schedulemesh.config.policy import as_policy, changed_rules, protected_pools
from headgate.placement.schedulemesh.pools import amounts_of, as_written, pool_fields

QUOTA = amounts(cpu=6, memory_bytes=2**33)


class Works:
    def __init__(self) -> None:
        self.told: list[str] = []

    def cancel(self, task_id: str) -> dict[str, str]:
        self.told.append(task_id)
        return {"cancelled": task_id}


def spec(**more: object) -> SimpleTaskSpec:
    return SimpleTaskSpec(**{"task_id": "t", "pool": "p", "actor_class": Works, "resources": {"cpu": 1}, **more})


def test_settings_have_the_names_of_the_seed() -> None:
    rules = changed_rules(
        PreemptionRules(),
        {
            "label_preemption_rules": {"role": {"train": ["rollout"]}},
            "preemption_aggressiveness": PreemptionAggressiveness.HIGH,
            "cancel_timeout": 0.25,
            "enable_cross_pool_preemption": True,
        },
    )
    assert (rules.label_threshold, rules.same_pool_threshold) == (0.1, 0.5)
    assert (rules.cancel_timeout_s, rules.cross_pool, rules.patience_s, rules.budget_share) == (0.25, True, 0.0, 1.0)
    policy = as_policy(rules, ["b", "a"])
    assert policy["label_preemption_rules"] == {"role": {"train": ["rollout"]}}
    assert (policy["cancel_timeout"], policy["protected_pools"]) == (0.25, ["a", "b"])


def test_a_threshold_that_is_given_goes_before_aggressiveness() -> None:
    settings = {"preemption_aggressiveness": "env:LEVEL", "label_priority_threshold": 0.3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEVEL", "background")
        rules = changed_rules(PreemptionRules(), settings)
    assert (rules.label_threshold, rules.same_pool_threshold) == (0.3, 3.0)


def test_settings_that_are_not_given_stay() -> None:
    before = PreemptionRules(label_rules={"role": {"train": ("rollout",)}}, cancel_timeout_s=2.0)
    after = changed_rules(before, {"same_pool_priority_threshold": 2.0})
    assert (after.label_rules, after.cancel_timeout_s, after.same_pool_threshold) == (before.label_rules, 2.0, 2.0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cancel_timeot": 1.0}, "did you mean 'cancel_timeout'"),
        ({"cancel_timeout": 1.0, "cancel_timeout_s": 1.0}, "given twice"),
        ({"preemption_aggressiveness": "extreme"}, "extreme"),
        ({"label_preemption_rules": {"role": {"a": ["b"], "b": ["a"]}}}, "role"),
    ],
)
def test_settings_that_cannot_be_used_are_errors(settings: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidPlacementError) as refused:
        changed_rules(PreemptionRules(), settings)
    assert says in str(refused.value)


def test_settings_of_the_score_have_no_effect_and_protected_pools_are_no_rule() -> None:
    settings = {"min_preempt_score": 0.9, "remaining_time_weight": 1.0, "protected_pools": ["eval"]}
    assert changed_rules(PreemptionRules(), settings) == changed_rules(PreemptionRules(), {})
    assert protected_pools(settings) == {"eval"}
    assert protected_pools({}) is None
    with pytest.raises(InvalidPlacementError):
        protected_pools({"protected_pools": "eval"})


def test_amounts_are_read_in_megabytes_and_any_other_name_is_a_custom_resource() -> None:
    found = amounts_of({"cpu": 1.33333, "memory": 512.0, "gpu": 1, "licence": 2, "custom": {"tpu": 4}})
    assert found == amounts(cpu=1.333, gpu=1, memory_bytes=2**29, custom={"licence": 2, "tpu": 4})
    assert as_written(found) == {"cpu": 1.333, "memory": 512.0, "gpu": 1.0, "custom": {"licence": 2.0, "tpu": 4.0}}
    with pytest.raises(InvalidPlacementError):
        amounts_of({"cpu": "2"})


def test_a_pool_has_the_groups_of_its_config() -> None:
    config = {"enable": True, "high_priority_pg_specs": [{"cpu": 2}], "max_dynamic_pgs": 2, "enable_pg_reuse": False}
    fields = pool_fields(config, "STRICT_PACK", QUOTA)
    assert [shape.size for shape in fields["reserved"]] == [amounts(cpu=2)]
    assert (fields["max_dynamic"], fields["reuse"]) == (2, False)
    assert pool_fields({"enable": True, "enable_dynamic_pgs": False}, "PACK", QUOTA)["max_dynamic"] == 0
    assert pool_fields({"enable": True}, "PACK", QUOTA)["max_dynamic"] == 20
    assert pool_fields(None, "PACK", QUOTA) == {"max_dynamic": None}


def test_a_reserved_group_larger_than_its_pool_is_the_value_error_of_the_seed() -> None:
    config = {"enable": True, "high_priority_pg_specs": [{"cpu": 2}, {"cpu": 7}]}
    with pytest.raises(ValueError, match=r"High-priority PG spec\[1\] exceeds pool quota"):
        pool_fields(config, "STRICT_PACK", QUOTA)
    with pytest.raises(ValueError, match="pg_strategy"):
        pool_fields({"enable": True}, "NEAR", QUOTA)
    with pytest.raises(InvalidPlacementError, match="max_dynamic"):
        pool_fields({"enable": True, "max_dynamic": 3}, "PACK", QUOTA)


def test_cancel_gets_the_id_of_the_task_and_its_answer_is_the_state_where_nothing_else_is() -> None:
    agent = agent_class(spec(task_id="train-00"), None, None)()
    assert (agent.cancel("train-00.2"), agent.told) == ({"cancelled": "train-00"}, ["train-00"])


def test_handlers_of_a_pool_save_and_restore_instead() -> None:
    restored: list[object] = []
    agent = agent_class(spec(), lambda worker: len(worker.told), lambda _, state: restored.append(state))()
    assert (agent.cancel("t"), agent.checkpoint()) == (None, 1)
    agent.restore(7)
    assert restored == [7]


def test_options_that_follow_from_the_place_are_left_out_and_names_are_found_from_the_driver() -> None:
    given = {"name": "trainer", "num_cpus": 4, "placement_group": None, "max_concurrency": 2}
    options = actor_options(spec(ray_options=given), "mine")
    assert options == {"name": "trainer", "namespace": "mine", "max_concurrency": 2}
    assert actor_options(spec(), "mine") == {}


def test_a_spec_becomes_keywords_of_a_submission() -> None:
    kwargs = spec(labels={"role": "train"}, agent_name="a").to_submission_kwargs()
    assert kwargs == {
        "task_id": "t",
        "pool_name": "p",
        "resources": {"cpu": 1},
        "priority": 5.0,
        "labels": {"role": "train"},
        "actor_class": Works,
        "agent_name": "a",
    }


def test_a_call_that_lacks_an_argument_is_told_by_the_name_that_was_called() -> None:
    scheduler = object.__new__(SimpleScheduler)  # none of these calls reaches a cluster
    with pytest.raises(TypeError, match=r"^SimpleScheduler.ensure_pool\(\) missing a required argument: 'name'$"):
        scheduler.ensure_pool()
    with pytest.raises(TypeError, match=r"^SimpleScheduler.complete\(\) got an unexpected keyword argument 'task'$"):
        scheduler.complete("t", task="t")
    assert SimpleScheduler.stats.__qualname__ == "SimpleScheduler.stats"
