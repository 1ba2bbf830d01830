"""The intervals on Models are those of `headgate summary`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.console.matrix import Cell, _together
from headgate.run.figures import PairFigures
from headgate.storage.summary import interval_of
from headgate.telemetry import status_document
from tests.storage.samples import sample
from tests.telemetry import factories


def _cell(scores: list[float], left_out: int = 0) -> Cell:
    figures = PairFigures()
    taken = [sample(number, score=score, success=False) for number, score in enumerate(scores)]
    for one in taken:
        figures.done(one)
    figures.leave_out((one.model, one.environment, one.finished_at, one.score or 0.0, 0) for one in taken[:left_out])
    (pair,) = figures.status({}, (), 0.0)
    (told,) = status_document(replace(factories.status(), pairs=(pair,)))["pairs"]
    return Cell(told, "http://there")


@pytest.mark.parametrize("left_out", [0, 3])
@pytest.mark.parametrize("scores", [[0.0, 1.0, 1.0, 1.0, 0.0, 1.0], [0.4, 0.5, 0.45, 0.6, 0.55, 0.5], [0.0, 0.3] * 3])
def test_the_interval_of_a_cell_is_that_of_the_summary(scores: list[float], left_out: int) -> None:
    kept = scores[left_out:]
    known = interval_of(len(kept), sum(kept), sum(s * s for s in kept), is_binary={0.0, 1.0}.issuperset(kept))
    assert _cell(scores, left_out).interval == pytest.approx((known.low, known.high))


def test_a_run_that_does_not_tell_the_squares_gets_the_widest_interval() -> None:
    told = _cell([0.4, 0.5, 0.6])
    older = Cell({name: value for name, value in told.pair.items() if name != "score_square_sum"}, told.run)
    assert told.interval is not None
    assert older.interval is not None
    assert older.interval[0] < told.interval[0] < told.interval[1] < older.interval[1]


def test_the_interval_of_a_pair_that_two_runs_sample_is_that_of_all_its_samples() -> None:
    one, other = [0.4, 0.5, 0.45], [0.6, 0.55, 0.5, 0.9]
    adds = ("due", "done", "scored", "errors", "score_sum")
    both = Cell(_together(_cell(one).pair, _cell(other).pair, adds=adds), "http://there")
    assert both.interval == pytest.approx(_cell(one + other).interval)
