"""What the demo shows while it runs and at its end."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from headgate.core import errors
from headgate.models import LOCAL_MODEL
from headgate.orchestration import DemoChoices, run_demo
from headgate.orchestration.demo.demo import DemoJournal, DemoProgress, missing_local_model
from headgate.storage import Journal, Opening


def _shown(renderable: object, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


PROGRESS = DemoProgress({("a@main", "affine:sat"): 3, ("a@main", "affine:abd"): 4}, {"b@main": 7.4}, 5, 2)


def test_a_line_has_the_counts_of_each_environment_and_who_is_paused() -> None:
    line = PROGRESS.line(12.34)
    for part in ("12.3 s", "7 scored", "affine:sat 3", "affine:abd 4", "affine:ded 0", "5 open", "paused: b@main"):
        assert part in line


def test_before_the_first_task_the_reader_learns_that_runs_are_starting() -> None:
    nothing = DemoProgress({}, {}, 0, 0)
    assert "the flow runs are starting" in nothing.line(1.0)
    assert "The flow runs are starting" in _shown(nothing.table())


def test_a_table_has_a_row_for_every_model_the_paused_ones_too() -> None:
    text = _shown(PROGRESS.table())
    assert "a@main" in text
    assert "paused, service errors (7 s)" in text


def test_a_narrow_terminal_cuts_no_name() -> None:
    long = DemoProgress({("organisation/a-model-with-a-long-name@main", "affine:sat"): 3}, {}, 5, 2)
    assert "…" not in _shown(long.table(), width=70)


def test_the_journal_is_read_while_others_write_it(tmp_path: Path) -> None:
    now = 1_000_000.0
    other = Journal(tmp_path, "demo")
    try:
        with DemoJournal(tmp_path, now) as journal:
            other.open([Opening("a@main", "affine:sat", now, 10.0, 100)])
            other.record_pause("b@main", 1, now + 5)
            progress = journal.progress(now)
    finally:
        other.close()
    assert (progress.open_tasks, progress.total, dict(progress.paused)) == (1, 0, {"b@main": 5.0})


async def test_a_roster_that_cannot_be_used_is_said_before_anything_starts(tmp_path: Path) -> None:
    choices = DemoChoices(folder=tmp_path / "demo", roster=tmp_path / "absent.yaml")
    with pytest.raises(errors.InvalidRosterError, match=r"absent\.yaml"):
        await run_demo(choices)
    assert not (tmp_path / "demo").exists()


def test_a_local_model_without_a_score_is_told_of() -> None:
    columns = {"model": [], "environment": [], "score": []}
    assert "too busy for an answer within 30 s" in missing_local_model(pl.DataFrame(columns), DemoChoices())
    scored = pl.DataFrame({"model": [f"{LOCAL_MODEL}@main"], "environment": ["affine:ded"], "score": [0.0]})
    assert missing_local_model(scored, DemoChoices()) == ""
