"""Traces that the benchmark of placement plays beside its peers, and the frontier that it draws of them."""

from __future__ import annotations

from pathlib import Path

from headgate_bench.definition import changed
from headgate_bench.placement.heavy_tails import (
    PEERS,
    drawn_cases,
    frontiers,
    heavy_bars,
    heavy_notes,
    played,
    pod_cases,
)
from headgate_bench.placement.lies import Lie, lie_bars, lies
from headgate_bench.scenarios.placement import PlacementParameters
from tests.replay.placement.test_openb import pods, row


def test_the_frontier_may_be_asked_for_at_0_where_no_work_goes_first_for_being_short() -> None:
    asked = changed(PlacementParameters(), ["trace_settings=0,3"])
    assert asked.trace_settings == (0.0, 3.0)


def test_a_list_of_pods_stands_beside_drawn_traces_in_bars_notes_and_frontiers(tmp_path: Path) -> None:
    path = pods(tmp_path, *(row(f"p{n}", 100 * n, 100 * n + 500, gpus=8) for n in range(20)))
    cases = [*drawn_cases((0.9,), (1,), 12), *pod_cases([path], 12, 1.0)]
    assert [each.kind for each in cases[2:]] == ["pods.csv, durations told", "pods.csv, durations not told"]
    found = played(cases, (0.0, 10.0), (2, 1), lambda _name: None)
    bars = heavy_bars(found, 0.5, 40, PlacementParameters())
    assert [bar.id for bar in bars][:2] == ["P7.trace_wait", "P7.trace_wide"]
    assert "worst of 4 traces" in bars[0].what
    charts = frontiers(found)
    assert [chart.title.split(", ", 1)[1] for chart in charts] == [each.kind for each in cases]
    assert [len(points) for points in charts[2].series.values()] == [2, 2, *(1 for _ in PEERS), 1]
    assert len(heavy_notes(found)) == len(cases) * (2 + 2 + len(PEERS) + 1)


def test_fewer_bands_are_the_same_jobs_of_which_the_lowest_are_told_apart_no_more() -> None:
    (told, _) = played(drawn_cases((1.5,), (3,), 60), (10.0,), (4, 1), lambda _name: None)
    assert told.bands[4].all == told.ours[10.0].all, "there are four"
    assert (told.bands[1].all.mean_s or 0) < (told.ours[10.0].all.mean_s or 0)
    assert (told.bands[1].high_p95_s or 0) > (told.ours[10.0].high_p95_s or 0), "measured by the bands that there were"


def test_owners_lie_one_at_a_time_on_traces_that_tell_durations() -> None:
    found = lies(drawn_cases((0.9,), (1,), 30), lambda _name: None)
    assert len({each.owner for each in found}) == len(found) == 3
    assert {each.trace for each in found} == {"load 90%, seed 1, durations told"}


def test_a_lie_that_pays_misses_its_bar_and_so_does_one_that_others_pay_for() -> None:
    bars = lie_bars([Lie("t", "a", 100.0, 50.0, 80.0, 60.0), Lie("t", "b", 100.0, 50.0, 110.0, 50.0)], 1.0, 1.05)
    assert [(bar.value, bar.met) for bar in bars] == [(0.95, False), (1.1, False)]
    assert lie_bars([Lie("t", "a", 0.0, 50.0, 0.5, 60.0)], 1.0, 1.05) == [], "nobody waits, so that nothing is shown"
    assert all(bar.met for bar in lie_bars([Lie("t", "a", 100.0, 50.0, 101.0, 50.0)], 1.0, 1.05))
