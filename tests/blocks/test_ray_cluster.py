"""The `RayCluster` block: what it accepts, and what placement takes from it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from blocks import RayCluster
from headgate.placement.amounts import amounts

RULES = {"label_rules": {"role": {"train": ["reward", "rollout"]}}, "cancel_timeout_s": 1.5}
POOL = {"name": "rlhf", "quota": {"cpu": 6, "memory": "2 GiB"}, "reserved": [{"cpu": 2}]}


async def test_a_saved_block_says_the_same_when_it_is_loaded(prefect: object) -> None:
    name = f"b-{uuid.uuid4().hex[:8]}"
    await RayCluster(address="10.0.0.5:6379", pools=[POOL], rules=RULES, aggressiveness="urgent").asave(name)
    block = await RayCluster.aload(name)
    (pool,) = block.pool_specs()
    assert (block.address, pool.name, pool.quota) == ("10.0.0.5:6379", "rlhf", amounts(cpu=6, memory_bytes=2**31))
    rules = block.preemption_rules()
    assert (rules.label_threshold, rules.same_pool_threshold, rules.cancel_timeout_s) == (0.1, 0.5, 1.5)
    assert rules.outranks({"role": "train"}, {"role": "rollout"})


def test_aggressiveness_of_a_variable_is_read_where_the_cluster_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    block = RayCluster(aggressiveness="env:HEADGATE_TEST_AGGRESSIVENESS")
    monkeypatch.setenv("HEADGATE_TEST_AGGRESSIVENESS", "low")
    assert block.preemption_rules().same_pool_threshold == 3.0


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"address": "http://head:6379/x"}, "address"),
        ({"pools": [{"name": "a", "quota": {"cpus": 2}}]}, "got 'cpus'"),
        ({"pools": [{"name": "a", "quota": {"cpu": 2}, "reserved": [{"cpu": 4}]}]}, "more than the quota"),
        ({"pools": [POOL, POOL]}, "'rlhf' twice"),
        ({"rules": {"cancel_timeout": 1}}, "'cancel_timeout_s'"),
        ({"rules": {"label_rules": {"role": {"a": ["b"], "b": ["a"]}}}}, "cycle"),
        ({"rules": {"aggressiveness": "low"}}, "a field of its own"),
        ({"aggressiveness": "fierce"}, "fierce"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(field: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        RayCluster(**field)
