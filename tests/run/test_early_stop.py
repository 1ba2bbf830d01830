from __future__ import annotations

from headgate.run.early_stop import RosterEarlyStop


def fed(stop: RosterEarlyStop, outcomes: list[tuple[str, bool]], models: int) -> list[str | None]:
    names = sorted({model for model, _ in outcomes})
    roster = names + [f"quiet{i}" for i in range(models - len(names))]
    return [stop.ended(model, has_failed=has_failed, models=roster) for model, has_failed in outcomes]


def test_half_of_the_window_failed_is_too_much_for_a_single_model() -> None:
    said = fed(RosterEarlyStop(0.5, 10), [("m", i % 2 == 1) for i in range(10)], 1)
    assert said[:9] == [None] * 9
    assert said[9] == "5 of the last 10 samples failed, 1 of 1 models keep failing (shutdown_error_rate 0.5)"


def test_nothing_is_said_before_the_window_is_full() -> None:
    assert fed(RosterEarlyStop(0.5, 10), [("m", True)] * 9, 1) == [None] * 9


def test_failures_that_have_left_the_window_do_not_count() -> None:
    stop = RosterEarlyStop(0.5, 4)
    assert fed(stop, [("m", True)] * 3 + [("m", False)] * 4 + [("m", True)], 1) == [None] * 8


def test_one_dead_model_among_many_never_stops_the_others() -> None:
    stop = RosterEarlyStop(0.5, 10)
    rounds = [("dead", True)] * 20 + [(f"m{i}", False) for i in range(3)]
    assert set(fed(stop, rounds * 20, 64)) == {None}


def test_one_dead_model_of_two_leaves_the_other_running() -> None:
    stop = RosterEarlyStop(0.5, 10)
    assert set(fed(stop, ([("dead", True)] * 9 + [("well", False)]) * 10, 2)) == {None}


def test_half_of_the_models_failing_stops_the_campaign() -> None:
    stop = RosterEarlyStop(0.5, 10)
    said = fed(stop, [(f"m{i % 4}", i % 4 < 2) for i in range(40)], 4)
    assert any(said)


def test_a_success_never_stops() -> None:
    stop = RosterEarlyStop(0.1, 4)
    assert fed(stop, [("m", True)] * 3 + [("m", False)], 1)[-1] is None


def test_a_model_that_left_the_roster_is_no_failing_model_any_more() -> None:
    stop = RosterEarlyStop(0.5, 2)
    fed(stop, [("a", True), ("b", True)], 8)
    assert fed(stop, [("b", True), ("b", True)], 2) == [None, None]
