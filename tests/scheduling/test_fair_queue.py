"""The laws of the fair queue: shares, order, no credit, no starvation, and what a decision costs."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import Task
from headgate.scheduling import Selection, StaleSelection, fair_queue
from tests.examples import examples
from tests.scheduling.queued import ReadyQueue, task


def _next(queue: ReadyQueue) -> Task:
    selection = queue.select_next()
    assert selection is not None
    served = queue.commit(selection)
    assert isinstance(served, Task)
    return served


def _by_environment() -> ReadyQueue:
    return ReadyQueue(lane_of=lambda t: t.environment)


def _assert_even(queue: ReadyQueue, *groups: str) -> None:
    """The next 30 turns of each group are theirs: nobody is ahead of anybody by more than one."""
    counts = Counter(_next(queue).group for _ in range(30 * len(groups)))
    assert set(counts) == set(groups)
    assert max(counts.values()) - min(counts.values()) <= 1


def _backlog(group: str, tasks: int, **more: object) -> list[Task]:
    return [task(f"{group}-{i}", group, **more) for i in range(tasks)]  # type: ignore[arg-type]


# Order.


def test_tasks_of_one_group_leave_in_the_order_in_which_they_came() -> None:
    queue = ReadyQueue()
    queue.enqueue(_backlog("a", 20))
    assert [_next(queue).task_id for _ in range(20)] == [f"a-{i}" for i in range(20)]
    assert queue.select_next() is None


def test_a_higher_priority_goes_first_inside_its_group_and_nowhere_else() -> None:
    queue = ReadyQueue()
    queue.enqueue([*_backlog("a", 2), task("a-urgent", "a", priority=5), *_backlog("b", 3)])
    queue.enqueue([task("a-later", "a", priority=-1), task("a-urgent-too", "a", priority=5)])
    served = [_next(queue) for _ in range(8)]
    of_a = [t.task_id for t in served if t.group == "a"]
    assert of_a == ["a-urgent", "a-urgent-too", "a-0", "a-1", "a-later"]
    assert [t.group for t in served[:6]] == ["a", "b"] * 3


def test_a_task_is_in_the_queue_once() -> None:
    queue = ReadyQueue()
    one = task("t-1")
    assert queue.enqueue([one, one]) == [one]
    assert queue.enqueue([one]) == []
    assert len(queue) == 1
    _next(queue)
    assert queue.enqueue([one]) == [one]


# Two phases.


def test_selecting_changes_nothing() -> None:
    queue = ReadyQueue()
    queue.enqueue([*_backlog("a", 3), *_backlog("b", 3)])
    first = queue.select_next()
    assert all(queue.select_next() == first for _ in range(5))
    assert len(queue) == 6
    assert queue.virtual_time == 0.0


def test_a_selection_is_committed_once() -> None:
    queue = ReadyQueue()
    queue.enqueue(_backlog("a", 2))
    selection = queue.select_next()
    assert selection is not None
    assert isinstance(queue.commit(selection), Task)
    assert isinstance(queue.commit(selection), StaleSelection)
    assert len(queue) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda queue: queue.enqueue([task("first", "a", priority=9)]), "head of its group"),
        (lambda queue: queue.discard("a-0"), "head of its group"),
        (lambda queue: queue.discard_where(lambda t: True), "head of its group"),
        (lambda queue: queue.close_lane("a"), "lane a is closed"),
    ],
    ids=["a more urgent task", "discarded", "all discarded", "lane closed"],
)
def test_a_selection_that_something_has_overtaken_is_refused(change: object, reason: str) -> None:
    queue = ReadyQueue()
    queue.enqueue(_backlog("a", 2))
    selection = queue.select_next()
    assert selection is not None
    change(queue)  # type: ignore[operator]
    before = [t.task_id for t in queue.items()]
    refused = queue.commit(selection)
    assert isinstance(refused, StaleSelection)
    assert reason in refused.reason
    assert [t.task_id for t in queue.items()] == before
    queue.validate()


def test_a_selection_does_not_outlive_its_group() -> None:
    queue = ReadyQueue()
    (one,) = _backlog("a", 1)
    queue.enqueue([one])
    selection = queue.select_next()
    assert selection is not None
    queue.discard(one.task_id)
    queue.enqueue([one])
    assert isinstance(queue.commit(selection), StaleSelection)
    assert len(queue) == 1


# Shares.


@settings(deadline=None, max_examples=examples(60))
@given(
    weights=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=6),
    passers=st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_backlogged_groups_never_drift_apart_by_more_than_a_turn_each(
    weights: list[float], passers: int, seed: int
) -> None:
    """For every interval of service and every pair: |S_i / w_i - S_j / w_j| <= 1 / w_i + 1 / w_j."""
    rng = random.Random(seed)
    queue = _by_environment()
    steps = 150
    for i, weight in enumerate(weights):
        queue.enqueue(_backlog(f"g{i}", steps, weight=weight, environment=f"open{i % 2}"))
    served = [0] * len(weights)
    low: dict[tuple[int, int], float] = {}
    high: dict[tuple[int, int], float] = {}
    for step in range(steps):
        for passer in range(passers):
            queue.enqueue(_backlog(f"p{passer}-{step % 7}", rng.randrange(3), environment=f"passing{passer % 2}"))
        toggle = queue.open_lane if rng.random() < 0.5 else queue.close_lane
        toggle(f"passing{rng.randrange(2)}")
        one = _next(queue)
        if one.group.startswith("g"):
            served[int(one.group[1:])] += 1
        for i, w in enumerate(weights):
            for j in range(i):
                gap = served[i] / w - served[j] / weights[j]
                low[i, j], high[i, j] = min(low.get((i, j), 0.0), gap), max(high.get((i, j), 0.0), gap)
    for (i, j), lowest in low.items():
        assert high[i, j] - lowest <= 1 / weights[i] + 1 / weights[j] + 1e-9


@settings(deadline=None, max_examples=25)
@given(
    held_s=st.lists(st.floats(0.01, 100.0), min_size=2, max_size=6),
    weights=st.lists(st.floats(0.1, 10.0), min_size=6, max_size=6),
)
def test_backlogged_groups_never_drift_apart_by_more_than_the_time_that_a_turn_of_each_is_held(
    held_s: list[float], weights: list[float]
) -> None:
    """For every pair: |T_i / w_i - T_j / w_j| <= t_i / w_i + t_j / w_j, t being what a service is charged at most."""
    queue = ReadyQueue()
    for i, weight in enumerate(weights[: len(held_s)]):
        queue.enqueue(_backlog(f"g{i}", 300, weight=weight))
    charged = [0.0] * len(held_s)
    for _ in range(300):
        selection = queue.select_next()
        assert selection is not None
        i = int(selection.item.group[1:])
        charged[i] += selection.group.charge
        queue.commit(selection)
        selection.group.held(held_s[i])
        queue.validate()
    most = [max(1.0, s) / w for s, w in zip(held_s, weights, strict=False)]
    for i, w in enumerate(weights[: len(held_s)]):
        for j in range(i):
            assert abs(charged[i] / w - charged[j] / weights[j]) <= most[i] + most[j] + 1e-6


def test_what_a_group_is_charged_is_what_its_services_were_held_a_service_later() -> None:
    queue = ReadyQueue()
    queue.enqueue(_backlog("a", 60))
    charged = 0.0
    for held_s in [8.0, 2.0] * 20 + [1.0] * 20:
        selection = queue.select_next()
        assert selection is not None
        charged += selection.group.charge
        queue.commit(selection)
        selection.group.held(held_s)
    assert charged == pytest.approx(20 * 8.0 + 20 * 2.0 + 20 * 1.0, abs=0.01)


def test_shares_follow_the_weights() -> None:
    queue = ReadyQueue()
    for group, weight in (("a", 1.0), ("b", 2.0), ("c", 5.0)):
        queue.enqueue(_backlog(group, 800, weight=weight))
    counts = Counter(_next(queue).group for _ in range(800))
    assert counts == {"a": 100, "b": 200, "c": 500}


def test_weights_hold_inside_a_lane_that_opens_for_one_task_at_a_time() -> None:
    queue = _by_environment()
    queue.enqueue(_backlog("light", 600, weight=1.0, environment="narrow"))
    queue.enqueue(_backlog("heavy", 600, weight=3.0, environment="narrow"))
    queue.enqueue(_backlog("wide", 4_000, environment="wide"))
    counts: Counter[str] = Counter()
    while sum(counts.values()) < 400:
        queue.open_lane("narrow")
        while (one := _next(queue)).group == "wide":
            pass
        counts[one.group] += 1
        queue.close_lane("narrow")
        for _ in range(3):
            assert _next(queue).group == "wide"
    assert counts == {"light": 100, "heavy": 300}


def test_a_group_that_was_idle_gets_its_share_and_no_more() -> None:
    queue = ReadyQueue()
    queue.enqueue(_backlog("busy", 500))
    for _ in range(200):
        _next(queue)
    queue.enqueue(_backlog("idle", 100))
    assert Counter(_next(queue).group for _ in range(100)) == {"busy": 50, "idle": 50}


def test_a_group_that_empties_and_returns_at_once_is_not_served_ahead_of_its_turn() -> None:
    queue = ReadyQueue()
    queue.enqueue(_backlog("patient", 60))
    counts: Counter[str] = Counter()
    for i in range(80):
        queue.enqueue([task(f"again-{i}", "returning")])
        counts[_next(queue).group] += 1
    assert counts == {"patient": 40, "returning": 40}


def test_a_lane_that_was_closed_for_long_gets_its_share_and_no_more() -> None:
    queue = _by_environment()
    for group in ("a", "b"):
        queue.enqueue(_backlog(group, 300, environment="paused"))
    queue.enqueue(_backlog("c", 900, environment="open"))
    queue.close_lane("paused")
    for _ in range(400):
        assert _next(queue).group == "c"
    queue.open_lane("paused")
    _assert_even(queue, "a", "b", "c")


def test_a_group_that_enters_a_closed_lane_is_not_held_back_when_it_opens() -> None:
    queue = _by_environment()
    queue.enqueue(_backlog("old", 100, environment="paused"))
    queue.enqueue(_backlog("other", 900, environment="open"))
    queue.close_lane("paused")
    for _ in range(500):
        _next(queue)
    queue.enqueue(_backlog("new", 100, environment="paused"))
    queue.open_lane("paused")
    _assert_even(queue, "old", "new", "other")


def test_a_group_that_leaves_a_closed_lane_holds_nobody_back_where_it_goes() -> None:
    queue = _by_environment()
    queue.enqueue([task("stuck", "mover", environment="paused")])
    queue.enqueue(_backlog("mover", 100, environment="open"))
    queue.enqueue(_backlog("native", 900, environment="open"))
    queue.enqueue(_backlog("far", 900, environment="elsewhere"))
    queue.close_lane("paused")
    for _ in range(600):
        assert _next(queue).group != "mover"
    queue.discard("stuck")  # type: ignore[arg-type]
    _assert_even(queue, "mover", "native", "far")


@settings(deadline=None, max_examples=examples(40))
@given(seed=st.integers(0, 2**32))
def test_nobody_starves_while_lanes_open_and_close_and_groups_move_between_them(seed: int) -> None:
    """An open group waits for at most two turns of each other group, however lanes toggle meanwhile."""
    rng = random.Random(seed)
    queue = _by_environment()
    lanes = ["x", "y", "z"]
    numbers = iter(range(10**6))
    backlog: Counter[str] = Counter()
    waits: Counter[str] = Counter()
    for _ in range(600):
        for group in "abcdef":
            if backlog[group] < 3:
                queue.enqueue([task(f"{group}{next(numbers)}", group, environment=rng.choice(lanes))])
                backlog[group] += 1
        lane = rng.choice(lanes)
        (queue.open_lane if rng.random() < 0.6 else queue.close_lane)(lane)
        heads = {g: next(t for t in queue.items() if t.group == g and queue.position(t.task_id) == 0) for g in "abcdef"}
        selection = queue.select_next()
        if selection is None:
            continue
        queue.commit(selection)
        backlog[selection.item.group] -= 1
        for group, head in heads.items():
            is_waiting = queue.is_open(head.environment) and group != selection.item.group
            waits[group] = waits[group] + 1 if is_waiting else 0
            assert waits[group] <= 2 * 5, group


# What a decision costs.


class _Counting(SimpleNamespace):
    """`heapq`, counted; a heap that is built anew counts as its length."""

    def __init__(self) -> None:
        super().__init__(steps=0)

    def heappush(self, heap: list[object], item: object) -> None:
        self.steps += 1
        heapq.heappush(heap, item)

    def heappop(self, heap: list[object]) -> object:
        self.steps += 1
        return heapq.heappop(heap)

    def heapreplace(self, heap: list[object], item: object) -> object:
        self.steps += 1
        return heapq.heapreplace(heap, item)

    def heapify(self, heap: list[object]) -> None:
        self.steps += len(heap)
        heapq.heapify(heap)


def _crowd(groups: int, closed_share: float) -> ReadyQueue:
    """Three tasks in each of many groups, most of them in lanes that are closed."""
    queue = _by_environment()
    for number in range(groups):
        is_closed = number < groups * closed_share
        lane = f"closed{number % 64}" if is_closed else f"open{number % 8}"
        queue.enqueue(_backlog(f"g{number}", 3, environment=lane))
    for lane in range(64):
        queue.close_lane(f"closed{lane}")
    return queue


@pytest.mark.parametrize("groups", [64, 4_096])
def test_a_cycle_takes_a_few_steps_however_many_groups_cannot_run(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _crowd(groups, 0.9)
    cycles = 2 * groups // 10
    monkeypatch.setattr(fair_queue, "heapq", counting := _Counting())
    for _ in range(cycles):
        assert _next(queue).environment.startswith("open")
    assert counting.steps <= 10 * cycles


def test_opening_and_closing_a_lane_costs_the_same_however_many_groups_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _by_environment()
    for number in range(4_096):
        queue.enqueue(_backlog(f"g{number}", 1, environment="one"))
    monkeypatch.setattr(fair_queue, "heapq", counting := _Counting())
    for _ in range(100):
        queue.close_lane("one")
        queue.open_lane("one")
    assert counting.steps <= 300


def test_what_was_discarded_leaves_nothing_behind_in_a_lane_that_stays_closed() -> None:
    queue = ReadyQueue()
    queue.close_lane("a")
    queue.enqueue(_backlog("b", 1))
    for number in range(5_000):
        queue.enqueue([task(f"t{number}", "a"), task(f"u{number}", f"c{number % 9}", model="b")])
        queue.discard(f"t{number}")  # type: ignore[arg-type]
        queue.discard(f"u{number}")  # type: ignore[arg-type]
    sizes = [len(queue._tops[0]), len(queue._groups), *(len(lane.heap) for lane in queue._lanes.values())]
    assert max(sizes) < 200
    assert len(queue) == 1


def test_a_selection_says_its_lane() -> None:
    queue = _by_environment()
    queue.enqueue([task("t", environment="sat")])
    selection = queue.select_next()
    assert isinstance(selection, Selection)
    assert selection.lane == "sat"


def test_an_item_that_stands_for_a_stream_is_served_again_and_again_by_the_weight_it_has_then() -> None:
    queue = ReadyQueue()
    light, heavy = task("t1", "light", weight=1.0), task("t2", "heavy", weight=3.0)
    queue.enqueue([light, heavy])
    served: list[str] = []
    for _ in range(40):
        selection = queue.select_next()
        assert selection is not None
        assert queue.serve(selection)
        assert not queue.serve(selection), "it is out of date"
        served.append(selection.item.group)
    assert 29 <= served.count("heavy") <= 31
    queue.validate()
    assert len(queue) == 2
    queue.enqueue([task("t3", "light")])
    selection = queue.select_next()
    assert selection is not None
    assert queue.serve(selection) is (selection.item.group == "heavy")


# Ranks, and what a subclass may use.


def test_a_lane_of_a_higher_rank_is_served_when_the_lower_ones_are_empty() -> None:
    queue = _by_environment()
    queue.enqueue([*_backlog("a", 3, environment="x"), *_backlog("b", 2, environment="y")])
    queue.set_rank("x", 1)
    assert [_next(queue).group for _ in range(5)] == ["b", "b", "a", "a", "a"]


def test_a_lane_that_gets_its_rank_back_is_first_and_hoards_nothing() -> None:
    queue = _by_environment()
    queue.enqueue([*_backlog("a", 40, environment="x"), *_backlog("b", 40, environment="y")])
    queue.set_rank("x", 3)
    assert {_next(queue).group for _ in range(10)} == {"b"}
    queue.set_rank("x", 0)
    assert _next(queue).group == "a"
    _assert_even(queue, "a", "b")


def _serve_others(queue: ReadyQueue, turns: int) -> None:
    """Serve a lane of a lower rank than that of `later`."""
    queue.enqueue(_backlog("busy", turns, environment="first"))
    for _ in range(turns):
        assert _next(queue).group == "busy"


def test_a_lane_that_was_closed_below_others_opens_at_virtual_time() -> None:
    queue = _by_environment()
    queue.set_rank("later", 1)
    queue.enqueue(_backlog("a", 2, environment="later"))
    _next(queue)
    queue.close_lane("later")
    _serve_others(queue, 50)
    queue.open_lane("later")
    queue.validate()
    selection = queue.first(1)
    assert selection is not None
    assert selection.tag == queue.virtual_time == 49.0


def test_a_group_that_returns_is_behind_those_that_were_there_before() -> None:
    queue = _by_environment()
    queue.set_rank("later", 1)
    queue.enqueue([task("a-0", "a", environment="later")])
    _next(queue)
    _serve_others(queue, 50)
    queue.enqueue([task("b-0", "b", environment="later")])
    queue.enqueue([task("a-1", "a", environment="later")])
    assert [_next(queue).task_id, _next(queue).task_id] == ["b-0", "a-1"]


def test_a_group_moves_when_it_is_told_that_its_lane_may_be_another() -> None:
    lanes = {"a": "x", "b": "y"}
    queue = ReadyQueue(lane_of=lambda t: lanes[t.group])
    queue.enqueue([*_backlog("a", 2), *_backlog("b", 2)])
    queue.close_lane("z")
    lanes["a"] = "z"
    queue.relist("a")
    queue.relist("nobody")
    queue.validate()
    assert [_next(queue).group for _ in range(2)] == ["b", "b"]
    assert queue.select_next() is None


def test_virtual_time_moves_forward_for_what_was_served_elsewhere_and_never_back() -> None:
    queue = ReadyQueue()
    queue.advance(7.0)
    queue.advance(3.0)
    assert queue.virtual_time == 7.0
    queue.enqueue(_backlog("a", 1))
    first = queue.first(0)
    assert first is not None
    assert first.tag == 7.0
    assert queue.first(5) is None


def test_groups_that_come_and_go_with_one_task_each_are_not_swept_every_time() -> None:
    queue = ReadyQueue()
    queue.enqueue([task(f"t{number}", f"g{number}") for number in range(100)])
    sweeps, kept = 0, queue._kept
    for number in range(100, 5_000):
        _next(queue)
        queue.enqueue([task(f"t{number}", f"g{number % 2_000}")])
        sweeps += queue._kept != kept
        kept = queue._kept
    assert sweeps < 30
    assert len(queue._groups) < 2 * 2_000 + 64


def test_groups_that_never_return_are_forgotten() -> None:
    queue = ReadyQueue()
    for number in range(1_000):
        queue.enqueue([task(f"b{number}", "busy"), task(f"t{number}", f"g{number}")])
        queue.validate()
        assert {_next(queue).group, _next(queue).group} == {"busy", f"g{number}"}
    assert len(queue._groups) < 200
