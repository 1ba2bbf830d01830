"""P8.frontier: what is compared with what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate_bench.elastic.frontier import Field, Setting, document, fields, frontier_bars, frontier_charts
from headgate_bench.elastic.replaying import ElasticParameters

OURS = Setting("predictive", 1.0, cost=2.0, p99_s=1.0, operations=30, prompt_share=0.99, engine_h=4.0)
PLAN = replace(OURS, policy="clairvoyant", cost=1.5, operations=20)


def beside(*peers: Setting) -> Field:
    return Field("bursty", 30.0, OURS, PLAN, peers)


def test_cost_is_by_the_cheapest_peer_that_waits_no_longer() -> None:
    slower = replace(OURS, policy="verl", cost=1.2, p99_s=9.0)
    as_fast = replace(OURS, policy="knative", cost=1.6, p99_s=1.0)
    dearer = replace(OURS, policy="fixed", cost=5.0, p99_s=0.0)
    assert beside(slower, as_fast, dearer).cost == pytest.approx(1.25)
    assert beside(slower, dearer).cost == pytest.approx(0.4)
    assert beside(slower).cost == 0.0


def test_waiting_is_beyond_that_of_peers_that_cost_no_more() -> None:
    assert beside(replace(OURS, cost=2.0, p99_s=0.25), replace(OURS, cost=2.1, p99_s=0.0)).wait_s == 0.75
    assert beside(replace(OURS, cost=1.0, p99_s=7.0)).wait_s == 0.0
    assert beside(replace(OURS, cost=3.0, p99_s=0.0)).wait_s == 0.0


def test_engine_hours_are_by_those_of_the_cheapest_peer_that_serves_as_many_promptly() -> None:
    worse = replace(OURS, prompt_share=0.98, engine_h=1.0)
    assert beside(worse, replace(OURS, engine_h=3.2)).goal == pytest.approx(1.25)
    assert beside(worse).goal == 0.0


def test_operations_are_by_those_of_the_plan() -> None:
    assert beside().operations == 1.5
    assert replace(beside(), plan=replace(PLAN, operations=0)).operations == 30.0


def test_each_drawn_load_and_start_stands_beside_the_bars_and_in_a_chart() -> None:
    small = ElasticParameters(drawn_scale=0.01, drawn_starts=(1.0, 30.0), drawn_peers=("knative",))
    told: list[str] = []
    played = fields(small, 0, told.append)
    assert [each.on for each in played] == ["bursty_1s", "bursty_30s", "smooth_1s", "smooth_30s"]
    assert {peer.policy for each in played for peer in each.peers} == {"knative"}
    assert {bar.id for bar in frontier_bars(small, played)} == {
        "P8.frontier_cost",
        "P8.frontier_wait",
        "P8.frontier_goal",
        "P8.frontier_operations",
    }
    assert len(frontier_charts(played)) == 4
    assert frontier_bars(small, []) == []


def test_waiting_and_operations_are_drawn_along_the_stable_window() -> None:
    small = ElasticParameters(
        drawn_shapes=("flash",), drawn_scale=0.05, drawn_peers=("fixed",), drawn_windows=(6.0, 60.0)
    )
    (played,) = fields(small, 0, lambda _: None)
    assert [each.value for each in played.windows] == [6.0, 60.0]
    chart = frontier_charts([played])[1]
    assert chart.title == "Waiting and operations on flash, 30 s to start"
    drawn = chart.series["predictive, by stable_window"]
    assert sorted(drawn) == sorted((each.operations, each.p99_s) for each in (played.ours, *played.windows))
    assert [row["value"] for row in document(played)["stable_windows"]] == [6.0, 60.0]
