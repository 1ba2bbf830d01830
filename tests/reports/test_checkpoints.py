"""The curve of a training by its checkpoints."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headgate.reports import build_curve, curve_document, curve_rows, curve_view
from tests.reports.factories import frame, lost, row

STEPS = {f"m@step_{step}": step for step in (1, 2, 3, 10, 11)}


def samples(model: str, solved: int, of: int = 40, **changes: Any) -> list[dict[str, Any]]:
    """Return the samples of a checkpoint that solves the first tasks."""
    return [
        row(task_id=f"{model}-{n}", model=model, sequence=n, index=n, score=float(n < solved), **changes)
        for n in range(of)
    ]


@pytest.fixture(scope="module")
def training() -> pl.DataFrame:
    rows = samples("m@step_1", 10) + samples("m@step_2", 30) + samples("m@step_3", 12) + samples("m@step_10", 31)
    failed = [lost(n, task_id=f"f-{n}", model="m@step_11", index=n) for n in range(5)]
    return frame(*rows, *failed, *samples("other@main", 40))


def test_each_checkpoint_is_compared_with_the_best_before_it(training: pl.DataFrame) -> None:
    curve = build_curve(training, STEPS)
    told = [(p.step, p.verdict, p.versus.against if p.versus else "") for p in curve.points]
    assert told == [
        (1, "first", ""),
        (2, "better", "m@step_1"),
        (3, "worse", "m@step_2"),
        (10, "not told apart", "m@step_2"),
        (11, "no score", ""),
    ]
    assert curve.best is not None
    assert curve.best.model == "m@step_10"
    worse = curve.point("m@step_3")
    assert worse is not None
    assert worse.is_regression
    assert worse.versus is not None
    assert worse.versus.difference is not None
    assert worse.versus.difference.difference == pytest.approx(-18 / 40)
    assert worse.versus.difference.high < 0


def test_a_checkpoint_with_few_tasks_in_common_with_the_best_says_how_many() -> None:
    curve = build_curve(frame(*samples("m@step_1", 4, of=9), *samples("m@step_2", 3, of=5)), STEPS)
    assert [point.verdict for point in curve.points] == ["first", "too few tasks (5 of 10)"]


def test_a_checkpoint_with_fewer_tasks_than_others_shows_it() -> None:
    """As where an environment was added later, and the former checkpoints are gone: their means leave it out."""
    added = samples("m@step_2", 0, environment="added:later")
    for number, one in enumerate(added):
        one["task_id"] = f"added-{number}"
    curve = build_curve(frame(*samples("m@step_1", 20), *samples("m@step_2", 30), *added), STEPS)
    assert [one["tasks"] for one in curve_rows(curve)] == ["80", "40 of 80"]
    assert [one["tasks"] for one in curve_document(curve)["checkpoints"]] == [40, 80]


def test_failing_does_not_make_a_checkpoint_the_best() -> None:
    good = samples("m@step_1", 30)
    bad = samples("m@step_2", 20, of=20) + [lost(n, task_id=f"f-{n}", model="m@step_2", index=n) for n in range(20, 40)]
    curve = build_curve(frame(*good, *bad), STEPS)
    assert curve.best is not None
    assert curve.best.model == "m@step_1"
    assert curve.points[1].is_regression, "a missing score counts as 0"


def test_the_curve_is_shown(training: pl.DataFrame) -> None:
    curve = build_curve(training, STEPS)
    rows = curve_rows(curve)
    assert [one["checkpoint"] for one in rows] == [f"m@step_{n}" for n in (11, 10, 3, 2, 1)], "the newest first"
    assert rows[1]["verdict"] == "not told apart, the best"
    assert rows[2]["difference"] == "-0.450"
    document = curve_document(curve)
    assert document["best"] == "m@step_10"
    assert document["checkpoints"][-1]["mean"] is None
    view = curve_view(curve, title="Checkpoints of m")
    page = view.page()
    assert "<svg" in page
    assert "step_10" in page
    assert "m@step_10" in view.markdown()
    nothing = curve_view(build_curve(training, {}), title="nothing")
    assert "No checkpoint has a score" in nothing.page()
