"""Pools and requests as people write them: what becomes of them, and a sentence for each mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from headgate.placement.amounts import Amounts, amounts
from headgate.placement.checks import (
    PoolSpec,
    RequestSpec,
    checked_pool,
    checked_request,
    memory_bytes,
    pool_spec,
    written_amounts,
)
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.pool import GroupShape, Pool
from headgate.placement.request import PlacementRequest


def test_a_request_is_what_was_written() -> None:
    found = checked_request(
        request_id="train-00",
        pool="rlhf",
        resources={"cpu": 2, "gpu": 1, "memory": "2 GiB", "custom": {"licence": 1}},
        priority=9,
        labels={"role": "train"},
        strategy="SPREAD",
        node_labels={"zone": "a"},
        preemptible=False,
        estimated_duration_s=25,
        restart_s=3,
        min_runtime_s=4,
        own_process=True,
        checkpoints=False,
    )
    wanted = amounts(cpu=2, gpu=1, memory_bytes=2**31, custom={"licence": 1})
    assert found == PlacementRequest(
        *("train-00", "rlhf", (wanted,), 9.0, {"role": "train"}, "SPREAD", {"zone": "a"}, False, 25.0, 3.0, 4.0),
        own_process=True,
        checkpoints=False,
    )


def test_a_request_without_more_takes_the_defaults_of_the_values() -> None:
    found = checked_request(request_id="a", pool="p", bundles=[amounts(cpu=1), {"cpu": 1}])
    assert found == PlacementRequest("a", "p", (amounts(cpu=1), amounts(cpu=1)))


def test_requests_without_an_id_get_different_ones() -> None:
    one, other = (checked_request(pool="p", resources={"cpu": 1}).request_id for _ in range(2))
    assert one != other
    assert one.startswith("request-")


def test_a_pool_is_what_was_written() -> None:
    shape = GroupShape((amounts(cpu=1), amounts(cpu=1)), "SPREAD", {"zone": "a"})
    found = checked_pool(
        name="rlhf",
        quota={"cpu": 6.5},
        reserved=[{"cpu": 2}, amounts(cpu=2), {"resources": {"cpu": 0.5}, "strategy": "PACK"}, shape],
        reserved_from_priority=7,
        lend_reserved=False,
        max_dynamic=None,
        reuse=False,
        protected=True,
        min_available={"role=rollout": 2},
    )
    two = GroupShape((amounts(cpu=2),))
    half = GroupShape((amounts(cpu=0.5),), "PACK")
    reserved = (two, two, half, shape)
    assert found == Pool("rlhf", amounts(cpu=6.5), reserved, 7.0, False, None, False, True, {"role=rollout": 2})


def test_a_pool_without_more_takes_the_defaults_of_the_values() -> None:
    assert checked_pool(name="p", quota={"cpu": 1}) == Pool("p", amounts(cpu=1))


def test_three_times_a_fifth_is_within_three_fifths() -> None:
    assert checked_pool(name="p", quota={"cpu": 0.6}, reserved=[{"cpu": 0.2}] * 3).quota == amounts(cpu=0.6)


def test_specs_are_read_from_json_and_have_a_schema() -> None:
    spec = pool_spec({"name": "p", "quota": {"cpu": 2, "memory": "1GB"}, "reserved": [{"cpu": 1}]})
    assert PoolSpec.model_validate_json(spec.model_dump_json()) == spec
    for model in (PoolSpec, RequestSpec):
        assert TypeAdapter(model).json_schema()["additionalProperties"] is False


def test_memory_is_bytes_or_text_with_a_unit() -> None:
    sizes = {0: 0, 5: 5, "5": 5, "1kB": 1_000, "2 GiB": 2**31, "1.5 MiB": 3 * 2**19, "3t": 3 * 10**12}
    assert {written: memory_bytes(written) for written in sizes} == sizes


def _said(check: Callable[..., object], *args: object, **written: object) -> str:
    """Return with which sentence something is refused."""
    try:
        return f"nothing: it became {check(*args, **written)}"
    except InvalidPlacementError as refused:
        return str(refused)


def test_other_memory_is_refused() -> None:
    for written in (-1, 1.5, True, None, "2 GiX", "-1", "0.3 B", "", [1]):
        assert f"got {written!r}" in _said(memory_bytes, written)


def test_bad_amounts_are_refused_with_a_sentence() -> None:
    cases: list[tuple[object, str]] = [
        ({"cpus": 1}, "(got 'cpus'); did you mean 'cpu'?"),
        ({"num_gpus": 1}, "did you mean 'gpu'?"),
        ({"tpu_pod": 1}, "got 'tpu_pod'"),
        ({"cpu": -1}, "An amount of CPU must be a number >= 0 (got -1)"),
        ({"cpu": "2"}, "An amount of CPU must be a number >= 0 (got '2')"),
        ({"gpu": True}, "got True"),
        ({"cpu": float("nan")}, "got nan"),
        ({"gpu": 1.5}, "An amount of GPU above 1 must be whole (got 1.5)"),
        ({"cpu": 0}, "more than nothing"),
        ({"custom": {"CPU": 1}}, "custom must not name 'CPU'"),
        ({"custom": 3}, "got 3"),
        (3, "got 3"),
        (Amounts((("CPU", -5),)), "got -5"),
        (Amounts(), "more than nothing"),
    ]
    for written, shows in cases:
        assert shows in _said(written_amounts, written), written


def test_bad_requests_are_refused_with_a_sentence() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"request_id": ""}, "request_id must be 1 to 100 of A-Z, a-z, 0-9, '.', '_' and '-' (got '')"),
        ({"request_id": "a\n"}, "(got 'a\\n')"),
        ({"request_id": "a" * 101}, "request_id must be"),
        ({"pool": "a b"}, "pool must be 1 to 100"),
        ({"priority": 1_000.5}, "less than or equal to 1000 (got 1000.5)"),
        ({"priority": -1_001}, "greater than or equal to -1000 (got -1001)"),
        ({"priority": float("nan")}, "(got nan)"),
        ({"resources": None}, "give either resources or bundles (got neither)"),
        ({"bundles": [{"cpu": 1}]}, "give either resources or bundles (got both)"),
        ({"resources": None, "bundles": []}, "at least 1 item"),
        ({"resources": None, "bundles": [{"cpu": 1}] * 257}, "at most 256 items"),
        ({"resources": {"cpu": -1}}, "resources: An amount of CPU must be a number >= 0 (got -1)"),
        ({"resources": None, "bundles": [{"cpu": 1}, {"cpu": 0}]}, "bundles[1]: Resources must be more than nothing"),
        ({"labels": {"role": 3}}, "labels.role"),
        ({"estimated_duration_s": -1}, "estimated_duration_s"),
        ({"restart_s": float("inf")}, "(got inf)"),
        ({"min_runtime_s": -0.1}, "(got -0.1)"),
        ({"strategy": "TIGHT"}, "STRICT_PACK"),
        ({"prioriti": 3}, "there is no setting prioriti; did you mean 'priority'?"),
    ]
    for changes, shows in cases:
        written = {"request_id": "a", "pool": "p", "resources": {"cpu": 1}} | changes
        said = _said(checked_request, **written)
        assert shows in said, changes
        assert "docs/how-to/placement.md" in said


def test_requests_at_the_bounds_are_accepted() -> None:
    found = checked_request(request_id="a" * 100, pool="A.z_0-9", bundles=[{"cpu": 1}] * 256, priority=-1_000)
    assert len(found.bundles) == 256
    assert checked_request(pool="p", resources={"cpu": 1}, priority=1_000).priority == 1_000


def test_bad_pools_are_refused_with_a_sentence() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"reserved": [{"cpu": 2}, {"cpu": 2.001}]},
            "reserved groups take 4.001 CPU together, more than the quota of 4",
        ),
        ({"reserved": [{"gpu": 1}]}, "1 GPU together"),
        ({"reserved": [{"cpu": -1}]}, "got -1"),
        ({"reserved": [{"resources": {"cpu": 1}, "strat": "PACK"}]}, "there is no setting reserved[0].strat"),
        ({"max_dynamic": -1}, "max_dynamic"),
        ({"min_available": {"role": 1}}, "such as 'role=rollout' (got 'role')"),
        ({"min_available": {"=x": 1}}, "(got '=x')"),
        ({"min_available": {"role=x": -1}}, "min_available.role=x"),
        ({"reserved_from_priority": float("nan")}, "(got nan)"),
        ({"quota": {}}, "quota: Resources must be more than nothing"),
        ({"name": None}, "pool cannot be used: name"),
        ({"max_dynamics": 2}, "did you mean 'max_dynamic'?"),
    ]
    for changes, shows in cases:
        assert shows in _said(checked_pool, **{"name": "p", "quota": {"cpu": 4}} | changes), changes


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(InvalidPlacementError) as refused:
        checked_request(priority=float("inf"))
    assert "request cannot be used: pool is missing; priority" in str(refused.value)


def test_only_the_cause_is_told_and_not_what_follows_from_it() -> None:
    with pytest.raises(InvalidPlacementError) as refused:
        checked_request(pool="p", bundles=[{"cpu": -1}])
    assert "bundles[0]: An amount of CPU must be a number >= 0" in str(refused.value)
    assert "at least 1 item" not in str(refused.value)
