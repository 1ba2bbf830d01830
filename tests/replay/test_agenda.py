"""Virtual time: what happens, and in which order."""

from __future__ import annotations

from headgate_replay.agenda import Agenda


def test_what_is_planned_happens_by_time_and_then_in_the_order_of_planning() -> None:
    agenda, seen = Agenda(), list[tuple[str, float]]()
    for at_s, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        agenda.plan(at_s, lambda now, name=name: seen.append((name, now)))
    assert agenda.next_s == 1.0
    agenda.happen(1.5)
    assert seen == [("first", 1.5), ("second", 1.5)]
    assert (agenda.next_s, len(agenda)) == (2.0, 1)


def test_what_is_planned_for_now_while_things_happen_happens_too() -> None:
    agenda, seen = Agenda(), list[float]()
    agenda.plan(1.0, lambda now: agenda.plan(now, seen.append))
    agenda.happen(1.0)
    assert seen == [1.0]
    assert agenda.next_s == float("inf")
