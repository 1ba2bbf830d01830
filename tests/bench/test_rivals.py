"""The rivals do the same work as ours, or the comparison says nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.core import Task, TaskId
from headgate_bench import at_least, at_most
from headgate_bench.crashes import Promises
from headgate_bench.rivals.batch_rounds import expected_utilisation
from headgate_bench.rivals.sorted_scan import SortedScanQueue
from tests.scheduling.queued import ReadyQueue


def _task(number: int, group: str, weight: float = 1.0) -> Task:
    return Task(TaskId(f"t-{number:024x}"), group, "bench:free", number, 0, 0, group, 0.0, weight=weight)


def test_the_sorted_scan_serves_groups_by_weight_as_the_fair_queue_does() -> None:
    rival = SortedScanQueue(lambda _group: True)
    ours = ReadyQueue()
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    tasks = [_task(n, group, weights[group]) for n, group in enumerate(["a", "b", "c"] * 100)]
    ours.enqueue(tasks)
    for task in tasks:
        rival.enqueue(task)
        rival.enqueue(task)
    served: dict[str, Counter[str]] = {"ours": Counter(), "rival": Counter()}
    for _ in range(70):
        selection = ours.select_next()
        assert selection is not None
        ours.commit(selection)
        served["ours"][selection.item.group] += 1
        task = rival.select_next()
        assert task is not None
        rival.commit(task)
        served["rival"][task.group] += 1
    for group, share in (("a", 10), ("b", 20), ("c", 40)):
        assert abs(served["ours"][group] - share) <= 1
        assert abs(served["rival"][group] - share) <= 1


def test_the_sorted_scan_passes_over_closed_groups() -> None:
    rival = SortedScanQueue(lambda group: group == "b")
    rival.enqueue(_task(0, "a"))
    assert rival.select_next() is None
    rival.enqueue(_task(1, "b"))
    selected = rival.select_next()
    assert selected is not None
    assert selected.group == "b"


def test_rounds_of_equal_tasks_waste_nothing_and_uneven_ones_wait_for_the_slowest() -> None:
    assert expected_utilisation(64, 64, sigma=0.0, rounds=2) == pytest.approx(1.0)
    one_each = expected_utilisation(64, 64, sigma=0.83, rounds=200)
    eight_each = expected_utilisation(512, 64, sigma=0.83, rounds=200)
    assert 0.15 < one_each < 0.25
    assert 0.5 < eight_each < 0.7


def test_a_line_that_was_cut_off_is_no_promise() -> None:
    promises = Promises()
    promises.take(b"accepted t-1 t-2\nstored b-1\naccepted t-3")
    assert promises.accepted == {"t-1", "t-2"}
    assert promises.stored == {"b-1"}


def test_a_figure_that_is_no_number_meets_no_bar() -> None:
    assert not at_least("x", "", float("nan"), 0.0, "").met
    assert not at_most("x", "", float("nan"), 0.0, "").met
    assert at_least("x", "", 1.0, 1.0, "").met
    assert at_most("x", "", 1.0, 1.0, "").met
