"""Pools on smaller clusters than they were written for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.placement.amounts import Amounts, amounts, total
from headgate.placement.checks import PoolSpec, pool_spec
from headgate.placement.errors import CannotFitError
from headgate.placement.pool import NodeView
from headgate.placement.scaling import homeless, scaled, scaled_amounts


def _spec(quota: dict[str, object], *reserved: object) -> PoolSpec:
    return pool_spec({"name": "p", "quota": quota, "reserved": list(reserved)})


def _nodes(*totals: Amounts) -> list[NodeView]:
    return [NodeView(f"n{number}", each) for number, each in enumerate(totals)]


def test_a_pool_that_fits_stays_as_it_is() -> None:
    spec = _spec({"cpu": 6}, {"cpu": 2}, {"cpu": 2})
    assert scaled(spec, _nodes(amounts(cpu=6))) == (spec.as_pool(), 1.0)


def test_single_nodes_count_and_not_their_sum() -> None:
    pool, factor = scaled(_spec({"cpu": 4}, {"cpu": 4}), _nodes(*[amounts(cpu=3)] * 4))
    assert factor == 0.75
    assert pool.reserved[0].size == amounts(cpu=3)
    assert pool.quota == amounts(cpu=3)


def test_a_cluster_with_less_than_the_quota_scales_the_pool() -> None:
    pool, factor = scaled(_spec({"cpu": 6, "memory": 600}, {"cpu": 2, "memory": 200}), _nodes(amounts(4, 0, 300)))
    assert factor == 0.5
    assert pool.quota == amounts(cpu=3, memory_bytes=300)
    assert pool.reserved[0].size == amounts(cpu=1, memory_bytes=100)


def test_a_huge_quota_is_scaled_to_a_quarter_at_most() -> None:
    assert scaled(_spec({"cpu": 1_000}), _nodes(amounts(cpu=1)))[1] == 0.25


def test_whole_gpus_and_named_resources_stay_whole() -> None:
    written = amounts(cpu=2, gpu=2, memory_bytes=100, custom={"licence": 1})
    assert scaled_amounts(written, 0.5) == amounts(cpu=1, gpu=2, memory_bytes=50, custom={"licence": 1})
    assert scaled_amounts(amounts(cpu=0.001), 0.25) == amounts(cpu=0.001)


def test_members_that_must_spread_take_different_nodes() -> None:
    gang = {"bundles": [{"cpu": 2}, {"cpu": 2}], "strategy": "STRICT_SPREAD"}
    assert scaled(_spec({"cpu": 4}, gang), _nodes(amounts(cpu=4), amounts(cpu=1)))[1] == 0.5
    assert scaled(_spec({"cpu": 4}, gang | {"strategy": "SPREAD"}), _nodes(amounts(cpu=4), amounts(cpu=1)))[1] == 1.0
    with pytest.raises(CannotFitError):
        scaled(_spec({"cpu": 4}, gang), _nodes(amounts(cpu=4)))


def test_members_that_must_pack_take_one_node() -> None:
    gang = {"bundles": [{"cpu": 2}, {"cpu": 2}], "strategy": "STRICT_PACK"}
    assert scaled(_spec({"cpu": 4}, gang), _nodes(amounts(cpu=2), amounts(cpu=2)))[1] == 0.5
    assert scaled(_spec({"cpu": 4}, gang | {"strategy": "PACK"}), _nodes(amounts(cpu=2), amounts(cpu=2)))[1] == 1.0


def test_only_nodes_with_the_labels_count() -> None:
    shape = {"resources": {"cpu": 4}, "node_labels": {"zone": "a"}}
    nodes = [NodeView("big", amounts(cpu=8)), NodeView("a", amounts(cpu=2), labels={"zone": "a"})]
    assert scaled(_spec({"cpu": 8}, shape), nodes)[1] == 0.5


def test_what_others_use_now_does_not_make_a_pool_smaller() -> None:
    nodes = [NodeView("n", amounts(cpu=4), foreign=amounts(cpu=4))]
    assert scaled(_spec({"cpu": 4}, {"cpu": 4}), nodes)[1] == 1.0


@pytest.mark.parametrize(
    ("spec", "totals", "shows"),
    [
        (
            _spec({"gpu": 8}, {"gpu": 1}, {"gpu": 4}),
            [amounts(1, 2)],
            ["Reserved group 1 of pool p (4 GPU", "n0 has 1 CPU, 2 GPU"],
        ),
        (
            _spec({"cpu": 40}, {"cpu": 20}),
            [amounts(2), amounts(4)],
            ["Reserved group 0", "even at 0.25", "n1 has 4 CPU"],
        ),
        (_spec({"gpu": 4}, {"gpu": 2}, {"gpu": 2}), [amounts(1, 3)], ["2 reserved groups", "4 GPU", "together"]),
        (_spec({"cpu": 1}, {"cpu": 1}), [], ["no node", "Add a node"]),
    ],
)
def test_what_fits_nowhere_is_refused_with_a_sentence(spec: PoolSpec, totals: list[Amounts], shows: list[str]) -> None:
    with pytest.raises(CannotFitError) as refused:
        scaled(spec, _nodes(*totals))
    for text in shows:
        assert text in str(refused.value)


@given(st.lists(st.integers(1, 8_000), min_size=1, max_size=5), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_reserved_groups_stay_within_quota_and_nodes(sizes: list[int], cpus: list[int]) -> None:
    reserved = [{"cpu": each / 1_000} for each in sizes]
    spec = _spec({"cpu": sum(sizes) / 1_000}, *reserved)
    try:
        pool, factor = scaled(spec, _nodes(*(amounts(cpu=each) for each in cpus)))
    except CannotFitError:
        return
    together = total(each.size for each in pool.reserved)
    assert 0.25 <= factor <= 1
    assert together.fits(pool.quota)
    assert together.fits(amounts(cpu=sum(cpus)))
    assert all(each.size.fits(amounts(cpu=max(cpus))) for each in pool.reserved)


def test_reserved_groups_that_no_node_could_hold_are_named() -> None:
    pool = _spec({"cpu": 12}, {"cpu": 2}, {"cpu": 5}, {"cpu": 2}).as_pool()
    assert homeless(pool, _nodes(amounts(cpu=4), amounts(cpu=4))) == (1,)
    assert homeless(pool, _nodes(amounts(cpu=5))) == ()
    assert homeless(pool, []) == (0, 1, 2)
