"""Pressure on endpoints, parked leases, short resources: what cannot run holds nobody up, and is not forgotten."""

from __future__ import annotations

import pytest

from headgate.core import HolderId, ReleaseOutcome, TaskId
from headgate.core.events import Event, RequestPressureSkipped
from headgate.scheduling import Dispatch, Dispatcher, Held, PressureRules, Trace
from tests.scheduling.queued import task


def _dispatcher(workers: int = 100, **more: object) -> Dispatcher:
    made = Dispatcher({"workers": workers}, holder=HolderId("h-1"), **more)  # type: ignore[arg-type]
    for model in "ab":
        made.set_model(model, 1_000)
    return made


def _fill(dispatcher: Dispatcher, model: str, size: int) -> None:
    dispatcher.enqueue([task(f"{model}{i}", model) for i in range(size)])


def _served(dispatcher: Dispatcher, now: float = 0.0, most: int = 1_000) -> list[str]:
    served: list[str] = []
    while len(served) < most and isinstance(granted := dispatcher.next(now), Dispatch):
        served.append(granted.task.model)
    dispatcher.validate()
    return served


# A short resource.


def test_a_task_that_wants_a_short_resource_holds_nobody_up() -> None:
    dispatcher = Dispatcher({"workers": 3, "judge": 1}, holder=HolderId("h"), is_roster_open=True)
    needs = {"workers": 1, "judge": 1}
    dispatcher.enqueue([task("j1", "a", resources=needs), task("j2", "a", resources=needs), task("w1", "a")])
    dispatcher.enqueue([task("w2", "b")])
    names = [granted.task.task_id for _ in range(3) if isinstance(granted := dispatcher.next(0.0), Dispatch)]
    assert sorted(names) == ["j1", "w1", "w2"]
    assert dispatcher.why(TaskId("j2"), 0.0).reason == "workers: wants 1, 0 free"
    dispatcher.set_limit("workers", 4)
    assert dispatcher.next(0.0) == Held("no_capacity", "judge: wants 1, 0 free")
    dispatcher.validate()


def test_groups_keep_their_shares_of_a_short_resource_however_long_the_others_go_on() -> None:
    dispatcher = Dispatcher({"workers": 99, "judge": 1}, holder=HolderId("h"), is_roster_open=True)
    needs = {"workers": 1, "judge": 1}
    for group, weight in (("a", 1.0), ("b", 3.0)):
        dispatcher.enqueue([task(f"{group}{i}", group, weight=weight, resources=needs) for i in range(60)])
    judged: list[str] = []
    for turn in range(40):
        dispatcher.enqueue([task(f"c{turn}.{i}", "c") for i in range(20)])
        granted = [one for _ in range(21) if isinstance(one := dispatcher.next(0.0), Dispatch)]
        judged += [one.task.group for one in granted if one.task.group != "c"]
        for one in granted:
            dispatcher.finished(one.task, one.lease)
    assert (judged.count("a"), judged.count("b")) == (10, 30)


# Pressure.


def test_a_pressed_model_waits_while_another_one_can_go() -> None:
    dispatcher = _dispatcher()
    _fill(dispatcher, "a", 3)
    _fill(dispatcher, "b", 3)
    dispatcher.set_pressure("a", "waiters")
    assert _served(dispatcher) == ["b", "b", "b", "a", "a", "a"]


def test_a_pressed_model_is_passed_over_a_bounded_number_of_times() -> None:
    dispatcher = _dispatcher(pressure=PressureRules(max_pass_overs=4))
    _fill(dispatcher, "a", 3)
    _fill(dispatcher, "b", 20)
    dispatcher.set_pressure("a", "provider_model_aggregate_cap")
    served = _served(dispatcher, most=12)
    assert served[:10] == ["b"] * 4 + ["a"] + ["b"] * 4 + ["a"]
    assert dispatcher.pressure.pass_overs >= 8
    why = dispatcher.why(TaskId("a2"), 0.0)
    assert why.gate == "pressure"
    assert "passed over 2 of 4 times" in why.reason


def test_a_pressed_model_is_not_passed_over_for_longer_than_the_bound() -> None:
    dispatcher = _dispatcher(pressure=PressureRules(max_pass_overs=1_000, max_age_s=10.0))
    _fill(dispatcher, "a", 1)
    _fill(dispatcher, "b", 9)
    dispatcher.set_pressure("a", "waiters")
    assert _served(dispatcher, now=1.0, most=2) == ["b", "b"]
    assert _served(dispatcher, now=11.0, most=1) == ["a"]


@pytest.mark.parametrize("reason", ["cooldown", "breaker_open", "no_slots"])
def test_nothing_starts_that_could_only_wait(reason: str) -> None:
    dispatcher = _dispatcher()
    _fill(dispatcher, "a", 2)
    dispatcher.set_pressure("a", reason, until=30.0)
    assert dispatcher.next(29.9) == Held(
        "lanes_closed", "every model with ready tasks is paused or has all its parallel slots in use"
    )
    why = dispatcher.why(TaskId("a1"), 0.0)
    assert (why.gate, why.until) == (reason, 30.0)
    assert dispatcher.next_change_at(0.0) == 30.0
    assert _served(dispatcher, now=30.0) == ["a", "a"]


def test_a_cooldown_that_grows_ends_at_its_later_end() -> None:
    dispatcher = _dispatcher()
    _fill(dispatcher, "a", 1)
    dispatcher.set_pressure("a", "cooldown", until=10.0)
    dispatcher.set_pressure("a", "cooldown", until=20.0)
    assert isinstance(dispatcher.next(15.0), Held)
    assert _served(dispatcher, now=20.0) == ["a"]


def test_pressure_that_is_over_is_over() -> None:
    dispatcher = _dispatcher()
    _fill(dispatcher, "a", 1)
    _fill(dispatcher, "b", 1)
    dispatcher.set_pressure("a", "cooldown", until=99.0)
    dispatcher.set_pressure("a", None)
    assert _served(dispatcher) == ["a", "b"]
    assert dispatcher.next_change_at(0.0) is None


def test_a_pass_over_is_told_with_its_reason() -> None:
    told: list[Event] = []
    dispatcher = _dispatcher(trace=Trace(told.append, run_id="r"))
    _fill(dispatcher, "a", 1)
    _fill(dispatcher, "b", 2)
    dispatcher.set_pressure("a", "waiters")
    _served(dispatcher)
    skipped = [event for event in told if isinstance(event, RequestPressureSkipped)]
    assert skipped[0] == RequestPressureSkipped("r", "a0", "a", "waiters", 1, "b0")


@pytest.mark.parametrize(("rule", "said"), [({"max_pass_overs": 0}, "max_pass_overs"), ({"max_age_s": 0}, "max_age_s")])
def test_impossible_bounds_are_refused(rule: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PressureRules(**rule)


# Parked leases.


def test_a_parked_lease_lets_another_task_run_and_comes_back_at_once() -> None:
    dispatcher = _dispatcher(1)
    _fill(dispatcher, "a", 2)
    first = dispatcher.next(0.0)
    assert isinstance(first, Dispatch)
    assert isinstance(dispatcher.next(0.0), Held)
    assert dispatcher.park(first.lease, 0.0)
    assert not dispatcher.park(first.lease, 0.0)
    assert dispatcher.why(first.task.task_id, 0.0).state == "parked"
    second = dispatcher.next(0.0)
    assert isinstance(second, Dispatch)
    assert dispatcher.unpark(first.lease, 0.0)
    assert not dispatcher.unpark(first.lease, 0.0)
    assert dispatcher.book.in_use["workers"] == 2
    dispatcher.validate()
    _fill(dispatcher, "b", 1)
    assert dispatcher.finished(second.task, second.lease) is ReleaseOutcome.RELEASED
    assert isinstance(dispatcher.next(0.0), Held)  # one still runs, on one worker
    assert dispatcher.finished(first.task, first.lease) is ReleaseOutcome.RELEASED
    assert _served(dispatcher) == ["b"]


def test_a_parked_lease_can_end_parked() -> None:
    dispatcher = _dispatcher(1)
    _fill(dispatcher, "a", 2)
    first = dispatcher.next(0.0)
    assert isinstance(first, Dispatch)
    dispatcher.park(first.lease, 0.0)
    assert dispatcher.finished(first.task, first.lease) is ReleaseOutcome.RELEASED
    assert dispatcher.finished(first.task, first.lease) is ReleaseOutcome.DUPLICATE
    assert dispatcher.book.in_use["workers"] == 0
    assert not dispatcher.unpark(first.lease, 0.0)
    dispatcher.validate()


def test_so_many_leases_are_parked_and_no_more() -> None:
    dispatcher = _dispatcher(3, max_parked=2)
    _fill(dispatcher, "a", 3)
    started = [one for _ in range(3) if isinstance(one := dispatcher.next(0.0), Dispatch)]
    assert [dispatcher.park(one.lease, 0.0) for one in started] == [True, True, False]


# Waking up.


def test_everything_that_can_let_a_task_run_calls_back() -> None:
    calls: list[str] = []
    dispatcher = _dispatcher(1, on_change=lambda: calls.append("woken"))
    calls.clear()

    def woke() -> bool:
        was = bool(calls)
        calls.clear()
        return was

    _fill(dispatcher, "a", 2)
    assert woke()
    first = dispatcher.next(0.0)
    assert isinstance(first, Dispatch)
    assert not woke()
    dispatcher.park(first.lease, 0.0)
    assert woke()
    dispatcher.finished(first.task, first.lease)
    assert woke()
    dispatcher.set_limit("workers", 2)
    assert woke()
    dispatcher.hold("a", 9.0)
    dispatcher.unhold("a")
    assert woke()
    dispatcher.set_pressure("a", "cooldown", 9.0)
    assert woke()  # there is another time to wake up at
    dispatcher.set_pressure("a", None)
    assert woke()
    dispatcher.set_model("a", 5)
    assert woke()
