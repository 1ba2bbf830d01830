"""The adaptive frontier: it widens while capacity idles, narrows under pressure, and never ends in a dead end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import TaskId
from headgate.scheduling import AdaptiveFrontier, BlockReason, FrontierRules, FrontierView, RowGroup
from headgate.scheduling.row_groups import RowGroups, taken_from
from tests.scheduling.queued import task
from tests.scheduling.test_stages import _after

IDLE = FrontierView(
    active=1, active_rows=1, next_rows=1, queued=0, limit=8, free=7, demand=0, warming=0, is_pressed=False
)
PRESSED = replace(IDLE, queued=20, free=0, demand=20)


def _blocked(view: FrontierView, rules: FrontierRules | None = None) -> BlockReason | None:
    return AdaptiveFrontier(rules or FrontierRules()).step(view, 0.0).blocked_by


def test_few_row_groups_are_opened_at_first() -> None:
    frontier = AdaptiveFrontier(FrontierRules(floor=2, cap=8))
    assert frontier.step(replace(IDLE, active=0), 0.0).opens
    assert frontier.step(replace(IDLE, warming=9), 0.0).opens
    assert frontier.step(replace(IDLE, active=2, warming=9), 0.0).blocked_by is BlockReason.QUEUED_MODEL_DEMAND
    assert frontier.target == 2


def test_it_widens_one_by_one_while_nothing_is_about_to_use_what_is_free_and_stops_at_the_cap() -> None:
    frontier = AdaptiveFrontier(FrontierRules(floor=1, cap=4))
    steps = [frontier.step(replace(IDLE, active=n), 0.0) for n in range(1, 5)]
    assert [(s.opens, s.before, s.after) for s in steps] == [(True, 1, 2), (True, 2, 3), (True, 3, 4), (False, 0, 0)]
    assert steps[0].reason == "horizon_limited"
    assert steps[-1].blocked_by is BlockReason.HARD_CAP
    assert (frontier.target, frontier.peak) == (4, 4)


def test_reasons_are_looked_at_in_their_order() -> None:
    everything = replace(PRESSED, next_rows=0, active_rows=10**6, queued=10**6, limit=None)
    order = []
    for change in (
        {},
        {"next_rows": 1},
        {"active_rows": 1},
        {"queued": 0},
        {"limit": 8},
        {"free": 3},
        {"demand": 0, "warming": 3},
    ):
        everything = replace(everything, **change)  # type: ignore[arg-type]
        order.append(_blocked(everything))
    assert order == [
        BlockReason.NO_PENDING_ROW_GROUPS,
        BlockReason.MAX_ADMITTED_ROWS,
        BlockReason.QUEUED_TASK_GUARDRAIL,
        BlockReason.NO_MODEL_RESOURCE,
        BlockReason.MODEL_SATURATED,
        BlockReason.QUEUED_MODEL_DEMAND,
        BlockReason.QUEUED_MODEL_DEMAND,
    ]
    assert _blocked(replace(everything, warming=2)) is None


@given(st.builds(replace, st.just(PRESSED), limit=st.sampled_from([None, 0, 8]), queued=st.integers(0, 10**6)))
def test_with_nothing_open_something_is_opened_whatever_holds(view: FrontierView) -> None:
    assert AdaptiveFrontier(FrontierRules()).step(replace(view, active=0, active_rows=0), 0.0).opens


def test_sustained_pressure_narrows_it_step_by_step_to_the_floor() -> None:
    frontier = AdaptiveFrontier(FrontierRules(floor=1, cap=4, narrow_after_s=5.0))
    for active in range(1, 4):
        frontier.step(replace(IDLE, active=active), 0.0)
    assert frontier.target == 4
    assert frontier.step(PRESSED, 10.0).before == 0
    assert frontier.next_change_at() == 15.0
    assert frontier.step(PRESSED, 14.9).before == 0
    targets = []
    for now in (15.0, 20.0, 25.0, 30.0, 99.0):
        step = frontier.step(PRESSED, now)
        targets.append(frontier.target)
        assert step.reason in {"sustained_pressure", ""}
    assert targets == [3, 2, 1, 1, 1]
    assert frontier.next_change_at() is None
    frontier.validate()


def test_pressure_that_passes_narrows_nothing() -> None:
    frontier = AdaptiveFrontier(FrontierRules(floor=1, cap=4, narrow_after_s=5.0))
    frontier.step(replace(IDLE, active=1), 0.0)
    frontier.step(PRESSED, 1.0)
    frontier.step(replace(IDLE, active=2, demand=9), 4.0)
    frontier.step(PRESSED, 5.0)
    assert frontier.step(PRESSED, 9.0).before == 0
    assert frontier.target == 2


def test_saturated_endpoints_are_pressure_too() -> None:
    frontier = AdaptiveFrontier(FrontierRules(floor=1, cap=4, narrow_after_s=5.0))
    frontier.step(replace(IDLE, active=1), 0.0)
    frontier.step(replace(IDLE, is_pressed=True), 1.0)
    assert frontier.step(replace(IDLE, is_pressed=True), 6.0).reason == "sustained_pressure"


def test_a_fixed_frontier_stays_at_its_cap() -> None:
    frontier = AdaptiveFrontier(FrontierRules(floor=1, cap=3, is_adaptive=False))
    assert [frontier.step(replace(PRESSED, queued=9, active=n), 0.0).opens for n in range(4)] == [True] * 3 + [False]
    assert not frontier.step(PRESSED, 100.0).before


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=60), st.integers(1, 3), st.integers(3, 9))
def test_the_target_stays_between_its_bounds(steps: list[tuple[bool, float]], floor: int, cap: int) -> None:
    frontier = AdaptiveFrontier(FrontierRules(floor=floor, cap=cap))
    now = 0.0
    for is_pressed, seconds in steps:
        now += seconds
        frontier.step(PRESSED if is_pressed else replace(IDLE, active=frontier.target), now)
        frontier.validate()


@pytest.mark.parametrize(
    "rules", [{"floor": 0}, {"floor": 9, "cap": 8}, {"max_rows": 0}, {"max_queued": 0}, {"narrow_after_s": 0}]
)
def test_impossible_rules_are_refused(rules: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        FrontierRules(**rules)


def test_a_row_group_warms_up_by_what_it_wants_first() -> None:
    def wants(name: str, *after: str) -> object:
        return replace(_after(name, *after), resources={"llm_wait": 1})

    tasks = (_after("s"), wants("h1", "s"), wants("h2", "s"), wants("f", "h1"), replace(_after("end", "f")))
    rows = RowGroups(lambda: RowGroup("g", tasks), "llm_wait")
    rows.open_next(0.0)
    assert rows.warming == 2
    rows.became_ready(TaskId("h1"))
    assert rows.warming == 1
    rows.validate()
    for name in ("s", "h1", "h2", "f"):
        assert rows.ended(TaskId(name), "completed") is None
    ended = rows.ended(TaskId("end"), "dropped")
    assert ended is not None
    assert (ended.completed, ended.dropped, rows.warming, rows.active_rows) == (4, 1, 0, 0)
    rows.validate()


def test_row_groups_are_taken_when_they_are_needed_and_have_names_of_their_own() -> None:
    taken = []

    def endless() -> object:
        while True:
            taken.append(None)
            yield RowGroup("same", (task("t"),))

    rows = RowGroups(taken_from(endless()), "llm_wait")
    assert not taken
    rows.open_next(0.0)
    assert len(taken) == 1
    with pytest.raises(ValueError, match="two row groups are called 'same'"):
        rows.open_next(0.0)


@pytest.mark.parametrize("make", [lambda: RowGroup("g", ()), lambda: RowGroup("g", (task("t"),), 0)])
def test_a_row_group_without_work_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match="must have a"):
        make()  # type: ignore[operator]
