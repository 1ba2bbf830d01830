"""Who held what: the tables and the figure of a placed run, and what its tasks ask for."""

from __future__ import annotations

import pytest

from headgate.orchestration import Demand, placed
from headgate.orchestration.placement.demand import demand_now
from headgate.orchestration.placement.place_roles import placing_markdown, timeline_svg
from headgate.orchestration.placement.rounds import Learned
from headgate.orchestration.placement.tenures import Stop, Tenure, TenureEnd, preemption_rows, role_rows
from headgate.placement.amounts import amounts


def _tenure(run: str, role: str, priority: float, start: float, end: float, how: TenureEnd = TenureEnd.DONE) -> Tenure:
    why = "preempted for train" if how is TenureEnd.PREEMPTED else ""
    return Tenure(
        run, role, priority, f"group-{role}", f"request-{run}", f"{run}-{start}", start - 0.5, start, end, how, why
    )


CUT = _tenure("rollout-1", "rollout", 2, 10, 13, TenureEnd.PREEMPTED)
TENURES = [CUT, _tenure("train-1", "train", 9, 13.1, 15), _tenure("rollout-1", "rollout", 2, 15.5, 16)]


def test_the_table_of_roles_begins_with_the_highest_priority() -> None:
    rows = role_rows(TENURES)
    assert [row["role"] for row in rows] == ["train", "rollout"]
    assert (rows[1]["task runs"], rows[1]["done"], rows[1]["preempted"], rows[1]["held"]) == ("1", "1", "1", "3.5 s")


def test_a_preemption_says_when_its_work_went_on_and_how_it_ended() -> None:
    (row,) = preemption_rows(TENURES)
    assert (row["ran before"], row["went on after"], row["ended"]) == ("3.00 s", "2.50 s", "done")
    assert (row["for"], row["lost at most"]) == ("", "")
    (alone,) = preemption_rows([CUT])
    assert (alone["went on after"], alone["ended"]) == ("not again", "preempted")


def test_a_preemption_has_the_cost_that_the_ledger_tells() -> None:
    others = Stop("request-other", "request-x", "label_based_preemption", 9.0, 1.0)
    stop = Stop("request-rollout-1", "request-train-1", "same_pool_preemption", 1.25, 0.021)
    (row,) = preemption_rows(TENURES, [others, stop])
    assert (row["for"], row["stopped in"], row["lost at most"]) == ("train-1", "21 ms", "1.25 cluster seconds")


def test_the_figure_has_a_line_for_each_place_and_a_mark_where_work_was_stopped() -> None:
    svg = timeline_svg(TENURES)
    assert svg is not None
    for shown in ("group-rollout", "group-train", "preempted"):
        assert shown in svg
    assert timeline_svg([]) is None


def test_the_report_of_a_run_that_did_nothing_is_whole_too() -> None:
    text = placing_markdown("monday", Learned(), [])
    for said in ("No round was completed.", "Nothing was placed.", "Nothing was stopped for other work."):
        assert said in text


def test_contexts_change_what_they_name_and_leave_the_rest() -> None:
    defaults = Demand(priority=2, labels={"role": "rollout"})
    assert demand_now(defaults) == defaults
    with placed(priority=9):
        with placed(resources=amounts(cpu=2)):
            inner = demand_now(defaults)
        assert demand_now(defaults).resources == amounts(cpu=1)
    assert (inner.priority, inner.resources, inner.labels) == (9, amounts(cpu=2), {"role": "rollout"})
    assert demand_now(defaults) == defaults


@pytest.mark.parametrize("value", [False, 0.0])
def test_a_value_that_is_false_is_a_value(value: object) -> None:
    with placed(preemptible=bool(value), priority=0.0):
        assert (demand_now(Demand()).preemptible, demand_now(Demand()).priority) == (False, 0.0)
