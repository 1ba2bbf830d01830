from __future__ import annotations

from collections.abc import Collection

from headgate.run.early_stop import RosterEarlyStop


def fed(
    stop: RosterEarlyStop, outcomes: list[tuple[str, bool]], models: int, held: Collection[str] = ()
) -> list[str | None]:
    names = sorted({model for model, _ in outcomes})
    roster = names + [f"quiet{i}" for i in range(models - len(names))]
    return [
        stop.ended(model, has_failed=has_failed, models=roster, is_held=held.__contains__)
        for model, has_failed in outcomes
    ]


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


def test_models_that_fail_never_stop_one_that_works() -> None:
    stop = RosterEarlyStop(0.5, 10)
    assert set(fed(stop, ([("a", True), ("b", True), ("c", True)] * 4 + [("well", False)]) * 10, 4)) == {None}


def test_models_that_fail_stop_neither_one_that_works_nor_one_whose_first_answer_is_to_come() -> None:
    stop = RosterEarlyStop(0.5, 10)
    failing = [("a", True), ("b", True), ("c", True)] * 4
    assert set(fed(stop, failing, 4)) == {None}, "nothing is known of the fourth"
    assert set(fed(stop, [*failing, ("well", False)] * 10, 4)) == {None}


def test_a_campaign_of_which_all_fails_that_is_not_held_stops() -> None:
    stop = RosterEarlyStop(0.5, 10)
    said = fed(stop, [("a", True), ("b", True)] * 10, 4, held=["quiet0", "quiet1"])
    assert said[9] == "10 of the last 10 samples failed, 2 of 4 models keep failing (shutdown_error_rate 0.5)"
    assert set(
        fed(RosterEarlyStop(0.5, 10), [("a", True), ("b", True)] * 10, 5, held=[f"quiet{i}" for i in range(3)])
    ) == {None}, "fewer than half of the roster fail"


def test_a_success_never_stops() -> None:
    stop = RosterEarlyStop(0.1, 4)
    assert fed(stop, [("m", True)] * 3 + [("m", False)], 1)[-1] is None


def test_a_model_that_left_the_roster_is_no_failing_model_any_more() -> None:
    stop = RosterEarlyStop(0.5, 2)
    fed(stop, [("a", True), ("b", True)], 8)
    assert fed(stop, [("b", True), ("b", True)], 2) == [None, None]
