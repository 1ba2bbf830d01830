"""Budgets of preemption: a share of the pool, what labels keep, no pair twice; and what is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.placement import budgets as budgets_module
from headgate.placement.amounts import amounts, total
from headgate.placement.budgets import Budgets
from headgate.placement.pool import Pool
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.rules import checked_rules

_POOL = Pool("p", amounts(cpu=1.2))
_RULES = checked_rules(budget_share=0.5, budget_interval_s=10, pair_interval_s=300)


def _work(request_id: str, cpu: float = 0.2, stage: Stage = Stage.RUNNING, **labels: str) -> Occupancy:
    return Occupancy(PlacementRequest(request_id, "p", (amounts(cpu=cpu),), labels=labels), "d", 0.0, 0, stage=stage)


def _rule(budgets: Budgets, victims: list[Occupancy], now: float, preemptor: str = "top") -> tuple[str, float] | None:
    found = budgets.allows(_POOL, victims, preemptor, victims, now)
    budgets.validate()
    return None if found is None else (found.rule, found.until or 0.0)


def test_three_fifths_are_exactly_half_of_the_quota() -> None:
    budgets = Budgets(_RULES)
    for number in range(3):
        assert _rule(budgets, [_work(f"w{number}")], 0.0) is None
        budgets.record(_POOL, [_work(f"w{number}")], "top", 0.0)
    assert _rule(budgets, [_work("more", 0.001)], 0.0) == ("budget", 10.0)


def test_room_comes_back_as_soon_as_enough_has_left() -> None:
    budgets = Budgets(_RULES)
    for number in range(3):
        budgets.record(_POOL, [_work(f"w{number}")], "top", float(number))
    assert _rule(budgets, [_work("a", 0.4)], 5.0) == ("budget", 11.0)
    assert _rule(budgets, [_work("a", 0.2)], 5.0) == ("budget", 10.0)
    assert _rule(budgets, [_work("a", 0.2)], 9.999) == ("budget", 10.0)
    assert _rule(budgets, [_work("a", 0.2)], 10.0) is None


def test_one_large_set_is_allowed_when_nothing_was_stopped() -> None:
    budgets = Budgets(_RULES)
    large = [_work("a", 0.6), _work("b", 0.6)]
    assert _rule(budgets, large, 0.0) is None
    budgets.record(_POOL, large, "top", 0.0)
    assert _rule(budgets, [_work("c", 0.001)], 1.0) == ("budget", 10.0)
    assert budgets.allows(replace(_POOL, name="q"), large, "else", large, 1.0) is None
    assert _rule(budgets, [_work("c", 1.2)], 10.0) is None


def test_the_same_two_do_not_stop_each_other_again() -> None:
    budgets = Budgets(_RULES)
    budgets.record(_POOL, [_work("a")], "b", 0.0)
    assert _rule(budgets, [_work("a")], 299.9, "b") == ("pair_interval", 300.0)
    assert _rule(budgets, [_work("x"), _work("b")], 20.0, "a") == ("pair_interval", 300.0)
    assert _rule(budgets, [_work("a")], 20.0, "c") is None
    assert _rule(budgets, [_work("a")], 300.0, "b") is None


def test_a_pair_rests_from_its_last_meeting() -> None:
    budgets = Budgets(_RULES)
    for at in (0.0, 400.0):
        budgets.record(_POOL, [_work("a")], "b", at)
    assert _rule(budgets, [_work("a")], 600.0, "b") == ("pair_interval", 700.0)


def test_a_label_keeps_its_least_number() -> None:
    pool = replace(_POOL, min_available={"role=rollout": 2})
    rollouts = [_work(f"r{number}", role="rollout") for number in range(3)]
    waiting = _work("r9", stage=Stage.WAITING, role="rollout")
    train = _work("train", role="train")
    everybody = [*rollouts, waiting, train]
    budgets = Budgets(_RULES)
    assert budgets.allows(pool, rollouts[:1], "top", everybody, 0.0) is None
    assert budgets.allows(pool, [train], "top", [train], 0.0) is None, "none of its own is stopped"
    found = budgets.allows(pool, rollouts[:2], "top", everybody, 0.0)
    assert found is not None
    assert (found.rule, found.until) == ("min_available", None)
    assert "at least 2 with role=rollout; 1 would be left" in found.says


def test_nothing_stopped_is_nothing_remembered() -> None:
    budgets = Budgets(_RULES)
    budgets.record(_POOL, [], "top", 0.0)
    assert budgets == Budgets(_RULES)


def test_what_no_limit_looks_at_is_forgotten() -> None:
    budgets = Budgets(_RULES)
    budgets.record(_POOL, [_work("a")], "top", 0.0)
    budgets.forget(299.0)
    assert budgets != Budgets(_RULES)
    budgets.forget(300.0)
    assert budgets == Budgets(_RULES)


def test_pairs_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets_module, "MOST_PAIRS", 3)
    budgets = Budgets(_RULES)
    for number in range(5):
        budgets.record(_POOL, [_work(f"w{number}")], "top", float(number))
    budgets.validate()
    assert _rule(budgets, [_work("w1")], 20.0) is None
    assert _rule(budgets, [_work("w2")], 20.0) == ("pair_interval", 302.0)


def test_other_rules_count_at_once() -> None:
    budgets = Budgets(_RULES)
    budgets.record(_POOL, [_work("a", 0.6)], "top", 0.0)
    budgets.rules = checked_rules(budget_share=1, pair_interval_s=0)
    assert _rule(budgets, [_work("a", 0.6)], 0.0) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.lists(st.integers(1, 8), min_size=1, max_size=3)), min_size=1, max_size=30
    ),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
)
def test_no_interval_has_more_than_its_share(steps: list[tuple[int, list[int]]], share: float) -> None:
    budgets = Budgets(checked_rules(budget_share=share, budget_interval_s=10, pair_interval_s=0))
    now, stopped = 0.0, []
    for number, (pause, sizes) in enumerate(steps):
        now += pause
        victims = [_work(f"w{number}-{index}", size / 10) for index, size in enumerate(sizes)]
        found = budgets.allows(_POOL, victims, "top", victims, now)
        if found is None:
            budgets.record(_POOL, victims, "top", now)
            stopped.append((now, total(each.request.size for each in victims)))
        else:
            assert found.until is not None
            assert budgets.allows(_POOL, victims, "top", victims, found.until) is None
            assert budgets.allows(_POOL, victims, "top", victims, found.until - 0.001) is not None
        budgets.validate()
        inside = [size for at, size in stopped if now < at + 10]
        assert len(inside) <= 1 or total(inside).get("CPU") <= share * _POOL.quota.get("CPU")
