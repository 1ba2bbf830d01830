"""Stages: what becomes ready when, what never will, and what a graph refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Task, TaskId
from headgate.core.errors import InvalidInputError
from headgate.scheduling import StageGraph, StageState
from tests.scheduling.queued import task


def _after(name: str, *dependencies: str, stage: str = "sample") -> Task:
    return replace(task(name), depends_on=tuple(TaskId(d) for d in dependencies), stage=stage)


def _ids(tasks: object) -> list[str]:
    return [one.task_id for one in tasks]  # type: ignore[attr-defined]


def test_a_stage_is_ready_when_all_it_waits_for_is_done() -> None:
    graph = StageGraph()
    assert _ids(graph.add([_after("agg", "j1", "j2"), _after("j1", "r"), _after("j2", "r"), _after("r")]).ready) == [
        "r"
    ]
    assert graph.waiting == 3
    assert _ids(graph.done(TaskId("r")).ready) == ["j1", "j2"]
    assert graph.missing(TaskId("agg")) == ["j1", "j2"]
    assert graph.done(TaskId("j2")).ready == ()
    assert _ids(graph.done(TaskId("j1")).ready) == ["agg"]
    graph.validate()


def test_an_end_is_told_once() -> None:
    graph = StageGraph()
    graph.add([_after("r"), _after("j", "r")])
    assert _ids(graph.done(TaskId("r")).ready) == ["j"]
    assert graph.done(TaskId("r")) == graph.failed(TaskId("r")) == graph.done(TaskId("nobody"))
    assert graph.state(TaskId("r")) is StageState.DONE


def test_a_failed_stage_drops_all_that_depends_on_it_and_says_because_of_what() -> None:
    graph = StageGraph()
    graph.add([_after("r"), _after("j", "r"), _after("agg", "j"), _after("other")])
    progress = graph.failed(TaskId("r"))
    assert [(d.task.task_id, d.because_of) for d in progress.dropped] == [("j", "r"), ("agg", "r")]
    assert graph.state(TaskId("other")) is StageState.READY
    assert graph.waiting == 0
    graph.validate()


def test_a_tolerant_stage_takes_what_there_is() -> None:
    graph = StageGraph(tolerant_stages=["aggregate"])
    graph.add([_after("j1"), _after("j2"), _after("agg", "j1", "j2", stage="aggregate")])
    assert graph.failed(TaskId("j1")).ready == ()
    assert _ids(graph.done(TaskId("j2")).ready) == ["agg"]


def test_a_tolerant_stage_runs_after_what_was_dropped_as_well() -> None:
    graph = StageGraph(tolerant_stages=["aggregate"])
    graph.add([_after("r"), _after("j", "r"), _after("agg", "j", stage="aggregate")])
    progress = graph.failed(TaskId("r"))
    assert (_ids(d.task for d in progress.dropped), _ids(progress.ready)) == (["j"], ["agg"])


def test_what_is_added_late_follows_what_has_ended() -> None:
    graph = StageGraph()
    graph.add([_after("r"), _after("bad")])
    graph.done(TaskId("r"))
    graph.failed(TaskId("bad"))
    assert _ids(graph.add([_after("j", "r")]).ready) == ["j"]
    assert _ids(d.task for d in graph.add([_after("k", "bad")]).dropped) == ["k"]
    graph.validate()


def test_a_task_is_taken_in_once() -> None:
    graph = StageGraph()
    one = _after("r")
    assert _ids(graph.add([one, one]).ready) == ["r"]
    assert graph.add([one]).ready == ()
    assert len(graph) == 1


def test_an_unknown_dependency_is_refused_by_name_and_nothing_is_taken_in() -> None:
    graph = StageGraph()
    with pytest.raises(InvalidInputError, match="task j depends on nobody, which is not known"):
        graph.add([_after("r"), _after("j", "nobody")])
    assert len(graph) == 0


@pytest.mark.parametrize("tasks", [[("a", "a")], [("a", "b"), ("b", "a")], [("r",), ("a", "r", "b"), ("b", "a")]])
def test_a_circle_is_refused(tasks: list[tuple[str, ...]]) -> None:
    with pytest.raises(InvalidInputError, match="which in turn depends on it"):
        StageGraph().add([_after(*one) for one in tasks])


def test_what_has_ended_can_be_forgotten_and_nothing_else() -> None:
    graph = StageGraph()
    graph.add([_after("r"), _after("j", "r")])
    graph.done(TaskId("r"))
    graph.forget([TaskId("r"), TaskId("j"), TaskId("nobody")])
    assert TaskId("r") not in graph
    assert graph.state(TaskId("j")) is StageState.READY


@given(st.data())
def test_every_task_of_any_graph_ends_exactly_once(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    tasks = [
        _after(
            f"t{n}",
            *(f"t{d}" for d in data.draw(st.sets(st.integers(0, max(n - 1, 0)), max_size=3)) if d < n),
            stage=data.draw(st.sampled_from(["sample", "aggregate"])),
        )
        for n in range(size)
    ]
    graph = StageGraph(tolerant_stages=["aggregate"])
    ready = list(graph.add(data.draw(st.permutations(tasks))).ready)
    ended: list[str] = []
    while ready:
        one = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        progress = graph.done(one.task_id) if data.draw(st.booleans()) else graph.failed(one.task_id)
        ended += [one.task_id, *(d.task.task_id for d in progress.dropped)]
        for late in progress.ready:
            assert all(graph.state(d) in {"done", "failed", "dropped"} for d in late.depends_on)
        ready += progress.ready
        graph.validate()
    assert sorted(ended) == sorted(t.task_id for t in tasks)
    graph.forget(TaskId(name) for name in ended)
    assert len(graph) == 0
