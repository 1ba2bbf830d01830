"""Rules of preemption: what they accept, what they refuse, and that no accepted ones allow a cycle."""

from __future__ import annotations

import pickle
from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.placement.amounts import amounts
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.pool import Pool
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.rules import (
    Aggressiveness,
    PreemptionRules,
    checked_rules,
    label_order,
    parse_aggressiveness,
    rules_from,
)
from headgate.placement.victims import refusal

_ROLES = {"role": {"train": ["reward", "rollout"], "reward": ["rollout"]}}
_VALUES = st.sampled_from(["a", "b", "c", "d", "e"])


def _may(preemptor: PlacementRequest, victim: PlacementRequest, rules: PreemptionRules) -> bool:
    running = Occupancy(victim, "driver", 0.0, 0, stage=Stage.RUNNING, started_at=0.0)
    return refusal(preemptor, running, Pool(victim.pool, amounts(cpu=8)), rules, 1_000.0) is None


@st.composite
def _rules(draw: st.DrawFn) -> PreemptionRules:
    steps = st.dictionaries(_VALUES, st.lists(_VALUES, max_size=3), max_size=5)
    label = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    written: dict[str, Any] = {
        "label_rules": draw(st.dictionaries(st.sampled_from(["role", "team"]), steps, max_size=2)),
        "label_threshold": label,
        "same_pool_threshold": label + draw(st.sampled_from([0.0, 0.1, 0.5])),
        "cross_pool_threshold": 2.0,
        "cross_pool": draw(st.booleans()),
    }
    try:
        return rules_from(written)
    except InvalidPlacementError:
        assume(False)
        raise


_REQUESTS = st.builds(
    lambda pool, tenths, labels: (pool, tenths / 10, labels),
    st.sampled_from(["p", "q"]),
    st.integers(-30, 30),
    st.dictionaries(st.sampled_from(["role", "team"]), st.sampled_from(["a", "b", "c", "d", "e", "other"])),
)


@given(_rules(), st.lists(_REQUESTS, min_size=2, max_size=5))
def test_no_chain_of_preemptions_comes_back(
    rules: PreemptionRules, written: list[tuple[str, float, dict[str, str]]]
) -> None:
    requests = [
        PlacementRequest(f"r{number}", pool, (amounts(cpu=1),), priority=priority, labels=labels)
        for number, (pool, priority, labels) in enumerate(written)
    ]
    for size in range(1, len(requests) + 1):
        for ring in permutations(requests, size):
            steps = zip(ring, (*ring[1:], ring[0]), strict=True)
            assert not all(_may(one, other, rules) for one, other in steps)


def test_two_chains_of_labels_do_not_meet_through_priorities() -> None:
    rules = rules_from({"label_rules": {"role": {"a": ["b"], "b": ["c"], "x": ["y"], "y": ["z"]}}})
    ring = [("a", 0.0), ("b", 0.5), ("c", 1.0), ("x", 0.0), ("y", 0.5), ("z", 1.0)]
    requests = [
        PlacementRequest(role, "p", (amounts(cpu=1),), priority=priority, labels={"role": role})
        for role, priority in ring
    ]
    steps = list(zip(requests, [*requests[1:], requests[0]], strict=True))
    assert not all(_may(one, other, rules) for one, other in steps)
    assert _may(requests[2], requests[3], rules)
    assert _may(requests[5], requests[0], rules)


@given(
    st.dictionaries(st.sampled_from(["role", "team"]), st.dictionaries(_VALUES, st.tuples(_VALUES))),
    st.lists(st.fixed_dictionaries({}, optional={"role": _VALUES, "team": _VALUES}), min_size=3, max_size=3),
)
def test_labels_make_a_strict_order(written: dict[str, dict[str, tuple[str, ...]]], sets: list[dict[str, str]]) -> None:
    try:
        order = label_order(written)
    except InvalidPlacementError:
        return
    one, other, third = sets
    assert not order.outranks(one, one)
    assert not (order.outranks(one, other) and order.outranks(other, one))
    if order.outranks(one, other) and order.outranks(other, third):
        assert order.outranks(one, third)


def test_labels_outrank_through_others() -> None:
    rules = rules_from({"label_rules": {"role": {"train": ["reward"], "reward": ["rollout"]}}})
    assert rules.outranks({"role": "train"}, {"role": "rollout"})
    assert not rules.outranks({"role": "rollout"}, {"role": "train"})
    assert not rules.outranks({"role": "train"}, {"role": "other"})
    assert not rules.outranks({}, {"role": "rollout"})
    assert rules.order.longest_chain == 2


def test_the_first_label_that_differs_decides() -> None:
    rules = rules_from({"label_rules": {"role": {"train": ["rollout"]}, "team": {"prod": ["dev"]}}})
    assert rules.outranks({"role": "train", "team": "dev"}, {"role": "rollout", "team": "prod"})
    assert not rules.outranks({"role": "rollout", "team": "prod"}, {"role": "train", "team": "dev"})
    assert rules.outranks({"role": "train", "team": "prod"}, {"role": "train", "team": "dev"})
    assert rules.outranks({"role": "unnamed", "team": "prod"}, {"team": "dev"})
    assert not rules.outranks({"role": "train", "team": "prod"}, {"team": "dev"})
    assert rules.order.longest_chain == 3


def test_label_rules_may_be_off() -> None:
    rules = checked_rules(label_rules=_ROLES, label_preemption=False)
    assert not rules.outranks({"role": "train"}, {"role": "rollout"})


def test_aggressiveness_sets_the_thresholds() -> None:
    for level, thresholds in {"high": (0.1, 0.5), "medium": (0.5, 1.0), "low": (1.0, 3.0)}.items():
        rules = checked_rules(aggressiveness=level)
        assert (rules.label_threshold, rules.same_pool_threshold) == thresholds
        assert checked_rules(aggressiveness=level, label_threshold=0.2).label_threshold == 0.2


def test_words_of_the_seed_name_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVEL", "Batch")
    levels = [
        ("HIGH", Aggressiveness.HIGH),
        (" high-priority ", Aggressiveness.HIGH),
        ("urgent", Aggressiveness.HIGH),
        ("critical", Aggressiveness.HIGH),
        ("prod", Aggressiveness.HIGH),
        ("medium_priority", Aggressiveness.MEDIUM),
        ("normal", Aggressiveness.MEDIUM),
        ("default", Aggressiveness.MEDIUM),
        ("low-priority", Aggressiveness.LOW),
        ("background", Aggressiveness.LOW),
        ("batch", Aggressiveness.LOW),
        ("env:LEVEL", Aggressiveness.LOW),
        ("ENV: LEVEL", Aggressiveness.LOW),
    ]
    for text, level in levels:
        assert parse_aggressiveness(text) is level, text


def test_a_variable_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_LEVEL", "urgent")
    assert parse_aggressiveness("env:MY_LEVEL") is Aggressiveness.HIGH


def test_bad_rules_are_refused_with_a_sentence() -> None:
    cases: list[tuple[dict[Any, Any], list[str]]] = [
        ({"cancel_timeot": 1}, ["'cancel_timeot'", "did you mean 'cancel_timeout_s'?"]),
        ({"agressiveness": "high"}, ["did you mean 'aggressiveness'?"]),
        ({"zzz": 1}, ["'zzz'", "Known are"]),
        ({1: 1}, ["'1'"]),
        ({"aggressiveness": "brutal"}, ["'brutal'", "high", "env:VARIABLE"]),
        ({"aggressiveness": 3}, ["got 3"]),
        ({"aggressiveness": "env:NOBODY_SET_THIS"}, ["not set", "Set NOBODY_SET_THIS"]),
        ({"min_runtime_s": -1}, ["min_runtime_s must be a number >= 0 (got -1)"]),
        ({"patience_s": float("nan")}, ["got nan"]),
        ({"budget_interval_s": float("inf")}, ["got inf"]),
        ({"max_preemptions": 1.5}, ["max_preemptions must be a number (got 1.5)"]),
        ({"max_preemptions": True}, ["got True"]),
        ({"cross_pool": "yes"}, ["cross_pool must be true or false (got 'yes')"]),
        ({"budget_share": 1.1}, ["budget_share must be 0 to 1 (got 1.1)"]),
        ({"same_pool_threshold": 0.4}, ["same_pool_threshold must be >= label_threshold 0.5 (got 0.4)", "Raise"]),
        ({"cross_pool_threshold": 0.9}, ["cross_pool_threshold must be >= same_pool_threshold 1.0 (got 0.9)"]),
        (
            {"same_pool_threshold": 0, "label_threshold": 0},
            ["same_pool_threshold must be >= 0.001 (got 0)", "for ever"],
        ),
        ({"label_rules": {"role": {"a": ["b"], "b": ["c"], "c": ["a"]}}}, ["'role'", "a > b > c > a", "Take one step"]),
        ({"label_rules": {"role": {"x": ["a"], "a": ["a"]}}}, ["(got a > a)"]),
        ({"label_rules": {"role": {"train": "rollout"}}}, ["'train'", "got 'rollout'", "Write for example"]),
        ({"label_rules": {"role": ["train"]}}, ["got ['train']"]),
        ({"label_rules": ["role"]}, ["got ['role']"]),
        ({"label_rules": {"role": {"train": [1]}}}, ["got 1"]),
        ({"label_rules": {"role": {"train": 7}}}, ["got 7"]),
    ]
    for written, shows in cases:
        try:
            said = f"nothing: it became {rules_from(written)}"
        except InvalidPlacementError as refused:
            said = str(refused)
        for text in shows:
            assert text in said, written


def test_rules_keep_their_order_when_they_are_sent() -> None:
    rules = checked_rules(label_rules=_ROLES)
    sent = pickle.loads(pickle.dumps(rules))
    assert sent == rules
    assert sent.outranks({"role": "train"}, {"role": "rollout"})
