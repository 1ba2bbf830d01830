"""Task admission policies: shares, borrowing, debt and the reserve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Denied, HolderId, Task
from headgate.scheduling import (
    Allowed,
    BoundedBorrow,
    Claim,
    DenyReason,
    Dispatch,
    Dispatcher,
    Held,
    Refused,
    StrictFair,
    TaskPolicy,
    debt,
    evaluate,
)
from headgate_bench.peer_arrival import peer_waits
from tests.scheduling.queued import task

CLAIMS = st.builds(
    Claim,
    resource=st.just("workers"),
    wanted=st.integers(1, 4),
    held=st.integers(0, 40),
    free=st.integers(0, 40),
    limit=st.integers(1, 64),
    weight=st.floats(0.1, 8),
    total_weight=st.floats(0.1, 64),
    groups=st.integers(1, 16),
    is_reserve_kept=st.booleans(),
    does_peer_wait=st.booleans(),
)
POLICIES = st.one_of(
    st.just(StrictFair()),
    st.builds(lambda cap: StrictFair(group_caps={"workers": cap}), st.integers(1, 9)),
    st.builds(BoundedBorrow, st.integers(0, 9), st.floats(0, 0.9), st.floats(0, 60)),
)


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


@given(POLICIES, CLAIMS)
def test_the_same_question_has_the_same_answer_and_debt_is_never_negative(policy: TaskPolicy, claim: Claim) -> None:
    first = evaluate(policy, (claim,))
    assert evaluate(policy, (claim,)) == first
    assert debt(policy, claim) >= 0
    assert first.debt >= 0


@given(POLICIES, CLAIMS)
def test_a_group_that_holds_nothing_is_never_refused(policy: TaskPolicy, claim: Claim) -> None:
    assert isinstance(evaluate(policy, (replace(claim, held=0),)), Allowed)


@given(POLICIES, CLAIMS, CLAIMS)
def test_a_peer_that_wants_another_resource_refuses_nobody_this_one(
    policy: TaskPolicy, claim: Claim, other: Claim
) -> None:
    here = replace(claim, does_peer_wait=False)
    there = replace(other, resource="judge", held=0, does_peer_wait=True)
    assert isinstance(evaluate(policy, (here, there)), Refused) == isinstance(evaluate(policy, (here,)), Refused)


@given(CLAIMS, st.floats(0.01, 0.9))
def test_what_is_borrowed_never_touches_a_reserve_that_is_kept(claim: Claim, share: float) -> None:
    policy = BoundedBorrow(reserve_share=share)
    kept = replace(claim, is_reserve_kept=True, does_peer_wait=False)
    allowed = evaluate(policy, (kept,))
    if isinstance(allowed, Allowed) and allowed.debt:
        assert kept.free - kept.wanted >= policy.reserve(kept.limit)


@given(st.integers(1, 64), st.floats(0, 0.99), st.floats(0.1, 8), st.integers(1, 9))
def test_a_group_alone_always_has_a_share(limit: int, reserve: float, weight: float, groups: int) -> None:
    policy = BoundedBorrow(reserve_share=reserve)
    assert 1 <= policy.share("workers", limit, weight, weight, groups) <= limit
    assert 0 <= policy.reserve(limit) < limit


def test_debt_is_what_a_group_holds_above_its_share() -> None:
    policy = BoundedBorrow(reserve_share=0.2)
    claim = Claim("workers", 1, held=6, free=2, limit=10, weight=1, total_weight=2, groups=2)
    assert policy.share("workers", 10, 1, 2, 2) == 4
    assert debt(policy, claim) == 2
    assert debt(policy, replace(claim, held=3)) == 0


def test_a_debtor_is_refused_while_a_peer_waits_and_says_what_it_owes() -> None:
    policy = BoundedBorrow(reserve_share=0.2)
    claim = Claim("workers", 1, held=6, free=2, limit=10, total_weight=2, groups=2, does_peer_wait=True)
    refused = evaluate(policy, (claim,))
    assert refused == Refused(DenyReason.BORROW_DEBT, "workers", 1, 6, 4, 2)
    at_share = evaluate(policy, (replace(claim, held=4),))
    assert isinstance(at_share, Refused)
    assert (at_share.reason, at_share.debt) == (DenyReason.GROUP_CAP, 0)


def test_a_ceiling_bounds_what_is_borrowed() -> None:
    policy = BoundedBorrow(borrow_ceiling=2, reserve_share=0)
    claim = Claim("workers", 1, held=5, free=5, limit=10, weight=1, total_weight=2, groups=2)
    assert evaluate(policy, (claim,)) == Allowed(1)
    refused = evaluate(policy, (replace(claim, held=7),))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.may_hold, refused.debt) == (DenyReason.BORROW_DEBT, 7, 2)


def test_several_resources_are_all_looked_at() -> None:
    policy = BoundedBorrow(reserve_share=0)
    fine = Claim("workers", 1, held=1, free=9, limit=10, total_weight=2, groups=2)
    over = Claim("judge", 1, held=1, free=1, limit=2, total_weight=2, groups=2, does_peer_wait=True)
    refused = evaluate(policy, (fine, over))
    assert isinstance(refused, Refused)
    assert refused.resource == "judge"


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
    assert dispatcher.debts() == {("a", "workers"): 4}
    # The peer gets what comes back up to its own share; then the reserve is filled up for whoever comes next.
    for owed, started in ((3, ["b"]), (2, ["b"]), (1, []), (None, [])):
        one = running.pop()
        dispatcher.finished(one.task, one.lease)
        assert _groups(_start_all(dispatcher, 1.0)) == started
        assert dispatcher.debts().get(("a", "workers")) == owed
    assert dispatcher.book.available("workers") == 2
    dispatcher.validate()


def test_a_policy_holds_a_task_and_why_says_so() -> None:
    dispatcher = _dispatcher(10, BoundedBorrow(reserve_share=0.2), "a", "b")
    tasks = _backlog(dispatcher, "a", 20)
    _start_all(dispatcher)
    why = dispatcher.why(tasks[-1].task_id, 0.0)
    assert (why.gate, why.reason) == ("borrow_debt", "group a holds 8 of workers and may hold 8 now")
    refused = dispatcher.evaluate(tasks[-1], 0.0)
    assert isinstance(refused, Refused)
    dispatcher.shut_down("the window is over")
    assert dispatcher.why(tasks[-1].task_id, 0.0).gate == "shutdown"
    assert isinstance(dispatcher.evaluate(tasks[-1], 0.0), Denied)
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
    assert dispatcher.evaluate(wanted, 1.0) is None
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


def test_evaluating_changes_nothing() -> None:
    dispatcher = _dispatcher(4, BoundedBorrow(), "a", "b")
    tasks = _backlog(dispatcher, "a", 3)
    _backlog(dispatcher, "b", 3)
    before = [dispatcher.evaluate(one, 0.0) for one in tasks]
    assert [dispatcher.evaluate(one, 0.0) for one in tasks] == before == [None] * 3
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
    assert dispatcher.debts() == {}


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
        dispatcher.admission.holdings.held("a", "llm_wait"),
        dispatcher.admission.holdings.held("a", "submission"),
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
