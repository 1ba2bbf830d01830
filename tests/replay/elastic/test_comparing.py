"""Comparisons: who takes part, what their tables say, frontiers, and short loads."""

from __future__ import annotations

import json

import pytest

from headgate.elastic.settings import ElasticConfig
from headgate_replay import elastic as replay
from headgate_replay.elastic import (
    COLUMNS,
    CONTENDERS,
    OURS,
    Call,
    InvalidLoadError,
    Site,
    asked_course,
    awake_course,
    compared,
    contender,
    frontier,
    load_of,
    ramp,
    steady,
    terms_of,
)
from headgate_replay.elastic.bounds import fewest_fixed
from headgate_replay.elastic.outcome import wait_course
from headgate_replay.elastic.page import replay_page, workers_figure

SHORT = ramp(seed=3, scale=0.01)


@pytest.mark.parametrize("name", CONTENDERS)
def test_everybody_answers_every_request_once(name: str) -> None:
    comparison = compared(SHORT, Site(start_s=1.0), policies=[name])
    figures = comparison.of(name)
    assert (figures.dropped, figures.doubled) == (0, 0)
    assert None not in comparison.outcomes[0].done_s
    assert figures.cost >= 1.0
    assert comparison.outcomes[0].says


def test_a_comparison_has_a_row_for_each_policy_and_can_be_written_as_json() -> None:
    comparison = compared(SHORT, Site(), policies=["fixed", OURS], frontiers=["fixed"])
    assert [row[0] for row in comparison.rows] == ["fixed", OURS]
    assert all(len(row) == len(COLUMNS) for row in comparison.rows)
    document = json.loads(json.dumps(comparison.document()))
    assert [policy["policy"] for policy in document["policies"]] == ["fixed", OURS]
    assert document["policies"][0]["cost"] == pytest.approx(16 * SHORT.window_s / SHORT.work_s, rel=0.2)
    swept = [point["value"] for point in document["frontiers"][0]["points"]]
    assert swept == [3, 5, 7, 9, 11, 13, 15, 16]
    assert document["bounds"][0]["wait_s"] == 0.0


def test_the_settings_of_a_pool_are_those_of_our_policies() -> None:
    calm = ElasticConfig(max_workers=4, wait_price=0.0, monitoring_interval=1.0)
    comparison = compared(SHORT, Site(workers=8), config=calm, policies=[OURS])
    assert comparison.of(OURS).peak <= 4
    assert comparison.config.wait_price == 0.0


def test_a_site_that_starts_slower_than_a_pool_would_wait_for_serves_everybody_all_the_same() -> None:
    config = ElasticConfig(start_timeout=5.0, queue_timeout=1.0, max_queue=1)
    figures = compared(SHORT, Site(start_s=20.0), config=config, policies=[OURS]).of(OURS)
    assert figures.dropped == 0
    assert figures.peak > 1


def test_an_unknown_policy_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidLoadError, match="no policy 'predictve' to replay; did you mean 'predictive'"):
        compared(SHORT, Site(), policies=[OURS, "predictve"])


def test_a_frontier_falls_in_waiting_as_it_rises_in_cost() -> None:
    line = frontier("fixed", terms_of(SHORT, Site()))
    assert [point.value for point in line.points] == [3, 5, 7, 9, 11, 13, 15, 16]
    costs = [point.measures.cost for point in line.best]
    waits = [point.measures.p99_s for point in line.best]
    assert costs == sorted(costs)
    assert waits == sorted(waits, reverse=True)
    assert len(set(waits)) == len(waits)


def test_the_fewest_workers_are_just_enough() -> None:
    calls = [Call(0.0, 0.0, 10.0) for _ in range(9)]
    load = load_of("nine", calls, slots=2)
    assert fewest_fixed(load, wait_s=0.0, share=1.0) == 5
    assert fewest_fixed(load, wait_s=10.0, share=1.0) == 3
    assert fewest_fixed(load, wait_s=0.0, share=8 / 9) == 4


def test_courses_are_means_of_what_was_there() -> None:
    load = steady(8, lasts_s=60)
    outcome = contender("fixed").play(terms_of(load, Site(workers=3)))
    assert [worth for _, worth in asked_course(load, bins=6)][1:] == pytest.approx([1.0] * 5)
    assert [awake for _, awake in awake_course(load, outcome, bins=6)] == pytest.approx([3.0] * 6)
    assert {wait_s for _, wait_s in wait_course(load, outcome)} == {0.0}


@pytest.mark.parametrize("policy", ["threshold", "knative"])
def test_short_loads_show_who_neither_flaps_nor_shrinks(policy: str) -> None:
    assert replay.operations_when_steady(policy, lasts_s=120.0) <= 1
    assert replay.drained_with_a_backlog(policy, count=200) == 0


def test_the_rule_of_verl_flaps_and_is_slow() -> None:
    assert replay.operations_when_steady("verl", lasts_s=600.0) == 19
    assert replay.starts_until_served("verl", start_s=30.0) > 2


def test_ours_has_workers_in_time_for_a_sudden_load() -> None:
    assert replay.starts_until_served(OURS, start_s=1.0) <= 2
    assert replay.starts_until_served(OURS, start_s=30.0) <= 2


def test_a_page_needs_nothing_else_and_names_every_policy() -> None:
    page = replay_page([compared(SHORT, Site(start_s=start_s), policies=["fixed", OURS]) for start_s in (1.0, 30.0)])
    assert page.count("<svg") == 6
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert all(f">{name}</td>" in page for name in ("fixed", OURS))
    assert "1 s to start" in page
    assert "30 s to start" in page


def test_no_policy_s_line_is_cut_off_by_the_scale_of_the_one_before() -> None:
    comparison = compared(SHORT, Site(start_s=1.0), policies=[OURS, "fixed"])
    least, most = (max(awake for _, awake in awake_course(comparison.load, one)) for one in comparison.outcomes)
    assert least < most
    assert workers_figure(comparison).axes[0].get_ylim()[1] >= most
