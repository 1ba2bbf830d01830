"""Task admission policies: shares, borrowing, debt and the reserve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import HolderId, Task
from headgate.scheduling import (
    BoundedBorrow,
    DenyReason,
    Dispatch,
    Dispatcher,
    Held,
    StrictFair,
    TaskPolicy,
)
from headgate_bench.scenarios.queue import peer_waits
from tests.scheduling.queued import task


def _dispatcher(workers: int, policy: TaskPolicy, *groups: str) -> Dispatcher:
    made = Dispatcher({"workers": workers}, holder=HolderId("h-1"), policy=policy)
    for group in groups:
        made.set_model(group, 1_000)
    return made


def _backlog(dispatcher: Dispatcher, group: str, size: int, now: float = 0.0, weight: float = 1.0) -> list[Task]:
    tasks = [task(f"{group}{i}@{now}", group, weight=weight) for i in range(size)]
    assert dispatcher.enqueue(tasks, now) == size
    return tasks


def _start_all(dispatcher: Dispatcher, now: float = 0.0) -> list[Dispatch]:
    started = []
    while isinstance(granted := dispatcher.next(now), Dispatch):
        dispatcher.validate()
        started.append(granted)
    return started


def _groups(started: list[Dispatch]) -> list[str]:
    return [one.task.group for one in started]


def _debt(dispatcher: Dispatcher, group: str) -> float:
    """Return what a group holds of the workers above its share."""
    held, share, _ = dispatcher.admission.holdings.bounds(group, "workers")
    return max(0, held - share)


@given(st.integers(1, 64), st.floats(0, 0.99), st.floats(0.1, 8), st.integers(1, 9))
def test_a_group_alone_always_has_a_share(limit: int, reserve: float, weight: float, groups: int) -> None:
    policy = BoundedBorrow(reserve_share=reserve)
    assert 1 <= policy.share("workers", limit, weight, weight, groups) <= limit
    assert 0 <= policy.reserve(limit) < limit


def test_a_ceiling_bounds_what_is_borrowed_and_why_says_what_is_owed() -> None:
    dispatcher = _dispatcher(10, BoundedBorrow(borrow_ceiling=2, reserve_share=0), "a", "b")
    tasks = _backlog(dispatcher, "a", 20)
    _start_all(dispatcher)
    running = [one for one in dispatcher.running.values() if one.task.group == "a"]
    _backlog(dispatcher, "b", 1)
    for one in running[:3]:
        dispatcher.finished(one.task, one.lease)
    assert _groups(_start_all(dispatcher)) == ["b"]
    assert _debt(dispatcher, "a") == 2
    why = dispatcher.why(tasks[-1].task_id, 0.0)
    assert (why.gate, why.reason) == ("borrow_debt", "group a holds 7 of workers and may hold 7 now, 2 borrowed")


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: BoundedBorrow(borrow_ceiling=-1), "borrow_ceiling must be >= 0"),
        (lambda: BoundedBorrow(reserve_share=1.0), r"reserve_share must be in \[0, 1\)"),
        (lambda: BoundedBorrow(reserve_for_s=float("nan")), "reserve_for_s must be >= 0"),
        (lambda: StrictFair(group_caps={"workers": 0}), "group cap of workers must be >= 1"),
    ],
)
def test_impossible_policies_are_refused_with_the_rule(make: object, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        make()  # type: ignore[operator]


# In the dispatcher.


def test_a_group_alone_takes_all_but_the_reserve_and_then_the_reserve() -> None:
    dispatcher = _dispatcher(10, BoundedBorrow(reserve_share=0.2, reserve_for_s=5.0), "a")
    _backlog(dispatcher, "a", 20)
    assert len(_start_all(dispatcher)) == 8
    held = dispatcher.next(0.0)
    assert isinstance(held, Held)
    assert held.reason == DenyReason.BORROW_DEBT
    assert dispatcher.next_change_at(0.0) == 5.0
    assert len(_start_all(dispatcher, now=5.0)) == 2


def test_a_peer_that_arrives_has_the_reserve_at_once() -> None:
    dispatcher = _dispatcher(10, BoundedBorrow(reserve_share=0.2), "a", "b")
    _backlog(dispatcher, "a", 20)
    _start_all(dispatcher)
    _backlog(dispatcher, "b", 5, now=1.0)
    assert _groups(_start_all(dispatcher, 1.0)) == ["b", "b"]


def test_a_debtor_repays_with_every_unit_that_it_gives_back_while_a_peer_waits() -> None:
    dispatcher = _dispatcher(10, BoundedBorrow(reserve_share=0.2), "a", "b")
    _backlog(dispatcher, "a", 20)
    running = _start_all(dispatcher)
    _backlog(dispatcher, "b", 20, now=1.0)
    _start_all(dispatcher, 1.0)
    assert _debt(dispatcher, "a") == 4
    # The peer gets what comes back up to its own share; then the reserve is filled up for whoever comes next.
    for owed, started in ((3, ["b"]), (2, ["b"]), (1, []), (0, [])):
        one = running.pop()
        dispatcher.finished(one.task, one.lease)
        assert _groups(_start_all(dispatcher, 1.0)) == started
        assert _debt(dispatcher, "a") == owed
    assert dispatcher.book.available("workers") == 2
    dispatcher.validate()


def test_a_policy_holds_a_task_and_why_says_so() -> None:
    dispatcher = _dispatcher(10, BoundedBorrow(reserve_share=0.2), "a", "b")
    tasks = _backlog(dispatcher, "a", 20)
    _start_all(dispatcher)
    why = dispatcher.why(tasks[-1].task_id, 0.0)
    assert (why.gate, why.reason) == ("borrow_debt", "group a holds 8 of workers and may hold 8 now")
    dispatcher.shut_down("the window is over")
    assert dispatcher.why(tasks[-1].task_id, 0.0).gate == "shutdown"
    assert dispatcher.next(0.0) == Held("shutdown", "the window is over")


def _two_that_share_nothing(policy: TaskPolicy) -> Dispatcher:
    """Group a holds its share of the workers and wants one more; group b wants the judge, which is free."""
    dispatcher = Dispatcher({"workers": 4, "judge": 1}, holder=HolderId("h-1"), policy=policy)
    for group in ("a", "b"):
        dispatcher.set_model(group, 9)
    _backlog(dispatcher, "a", 1)
    _start_all(dispatcher)
    _backlog(dispatcher, "a", 1, now=1.0)
    dispatcher.enqueue([task("b0", "b", resources={"judge": 1})])
    return dispatcher


def test_who_wants_another_resource_is_no_peer() -> None:
    dispatcher = _two_that_share_nothing(StrictFair(group_caps={"workers": 1}))
    wanted = dispatcher.queue.item("a0@1.0")
    assert wanted is not None
    assert dispatcher.why(wanted.task_id, 1.0).gate == "fair_share"
    assert _groups(_start_all(dispatcher, 1.0)) == ["b", "a"]


def test_who_is_passed_over_for_its_pressure_is_no_peer_and_the_task_that_goes_says_so() -> None:
    dispatcher = _dispatcher(4, StrictFair(group_caps={"workers": 1}), "a", "b")
    _backlog(dispatcher, "a", 1)
    _start_all(dispatcher)
    (one,) = _backlog(dispatcher, "a", 1, now=1.0)
    _backlog(dispatcher, "b", 1)
    assert dispatcher.why(one.task_id, 1.0).gate == "group_cap"
    dispatcher.set_pressure("b", "waiters")
    why = dispatcher.why(one.task_id, 1.0)
    assert (why.gate, why.reason) == ("none", "it runs next")
    assert _groups(_start_all(dispatcher, 1.0)) == ["a", "b"]


def test_asking_why_changes_nothing() -> None:
    dispatcher = _dispatcher(4, BoundedBorrow(), "a", "b")
    tasks = _backlog(dispatcher, "a", 3)
    _backlog(dispatcher, "b", 3)
    before = [dispatcher.why(one.task_id, 0.0) for one in tasks]
    assert [dispatcher.why(one.task_id, 0.0) for one in tasks] == before
    assert _groups(_start_all(dispatcher)) == ["a", "b", "a"]


def test_a_group_cap_counts_while_a_peer_waits_and_leaves_nothing_idle() -> None:
    dispatcher = _dispatcher(8, StrictFair(group_caps={"workers": 2}), "a", "b")
    _backlog(dispatcher, "a", 9)
    _backlog(dispatcher, "b", 2)
    assert sorted(_groups(_start_all(dispatcher))) == ["a"] * 6 + ["b"] * 2


@given(
    st.integers(1, 6),
    st.integers(1, 12),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=12),
)
def test_nobody_gets_beyond_the_group_cap_before_whoever_is_below_it_and_no_worker_idles(
    cap: int, workers: int, steps: list[tuple[str, int, int]]
) -> None:
    dispatcher = _dispatcher(workers, StrictFair(group_caps={"workers": cap}), *"abcd")
    held, queued = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 0)
    running: list[Dispatch] = []
    for number, (group, arrive, end) in enumerate(steps):
        _backlog(dispatcher, group, arrive, now=float(number))
        queued[group] += arrive
        for _ in range(min(end, len(running))):
            over = running.pop(0)
            dispatcher.finished(over.task, over.lease)
            held[over.task.group] -= 1
        while isinstance(granted := dispatcher.next(float(number)), Dispatch):
            taker = granted.task.group
            assert held[taker] < cap or not any(queued[g] and held[g] < cap for g in held if g != taker)
            held[taker] += 1
            queued[taker] -= 1
            running.append(granted)
        assert len(running) == workers or not any(queued.values())
        dispatcher.validate()


def test_strict_fair_lets_whoever_comes_first_have_everything() -> None:
    dispatcher = _dispatcher(4, StrictFair(), "a", "b")
    _backlog(dispatcher, "a", 9)
    assert len(_start_all(dispatcher)) == 4
    _backlog(dispatcher, "b", 1)
    assert isinstance(dispatcher.next(0.0), Held)


def test_a_group_at_its_ceiling_goes_on_when_its_peer_has_left() -> None:
    dispatcher = _dispatcher(8, BoundedBorrow(borrow_ceiling=1, reserve_share=0), "a", "b")
    _backlog(dispatcher, "b", 1)
    (peer,) = _start_all(dispatcher)
    _backlog(dispatcher, "a", 9)
    assert len(_start_all(dispatcher)) == 5  # a share of 4, and 1 borrowed
    dispatcher.finished(peer.task, peer.lease)
    assert len(_start_all(dispatcher)) == 3
    dispatcher.validate()


def test_a_raised_limit_raises_shares() -> None:
    dispatcher = _dispatcher(4, BoundedBorrow(borrow_ceiling=1, reserve_share=0), "a", "b")
    _backlog(dispatcher, "b", 1)
    _start_all(dispatcher)
    _backlog(dispatcher, "a", 9)
    assert len(_start_all(dispatcher)) == 3
    dispatcher.set_limit("workers", 9)
    assert len(_start_all(dispatcher)) == 2
    dispatcher.validate()


def test_submission_slots_are_not_shared_out_unless_they_are_all_there_is() -> None:
    dispatcher = Dispatcher(
        {"submission": 8, "llm_wait": 2}, holder=HolderId("h"), policy=BoundedBorrow(), is_roster_open=True
    )
    dispatcher.enqueue([task("a", resources={"submission": 1, "llm_wait": 1})])
    dispatcher.enqueue([task("b", resources={"submission": 1})])
    _start_all(dispatcher)
    assert (
        dispatcher.admission.holdings.bounds("a", "llm_wait")[0],
        dispatcher.admission.holdings.bounds("a", "submission")[0],
    ) == (1, 1)


def test_a_peer_that_arrives_beside_a_heavy_group_waits_for_nothing_at_about_equal_wall_time() -> None:
    strict = peer_waits(StrictFair(), is_timed=False)
    bounded = peer_waits(BoundedBorrow(reserve_share=0.375, reserve_for_s=1.0))
    assert (strict.wall_s, strict.first_wait_s) == (pytest.approx(33.6), pytest.approx(0.45))
    assert strict.p95_wait_s > 33
    assert bounded.first_wait_s == 0
    assert bounded.p95_wait_s < 5
    assert bounded.wall_s < 1.02 * strict.wall_s


def test_a_peer_that_arrives_beside_a_heavy_group_waits_for_a_fourth_of_the_time_where_turns_are_by_time_held() -> None:
    by_number = peer_waits(StrictFair(), is_timed=False)
    by_time = peer_waits(StrictFair())
    assert by_time.p95_wait_s < by_number.p95_wait_s / 3
    assert by_time.wall_s < 1.02 * by_number.wall_s
