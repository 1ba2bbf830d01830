from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from headgate.reports import live_view, status_lines
from headgate.reports.live import status_line
from headgate.telemetry import duration
from tests.telemetry.factories import model, status


def shown(view, width=200):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view)
    return console.file.getvalue()


def test_the_line_has_the_figures_of_queue_workers_and_spool():
    assert status_line(status()) == (
        "main  running  up 1m 30s  models 3 (1 paused)  workers 19/20 (95% busy)  queue 1,234  samples 11,981  "
        "stored 11,925  spool 56"
    )


def test_a_long_or_paused_queue_is_named():
    queue = status().queue
    assert "queue 5,001 long" in status_line(status(queue=replace(queue, size=5001)))
    assert "queue 8,100 paused" in status_line(status(queue=replace(queue, size=8100, is_paused=True)))


def test_the_table_has_a_row_per_pair_with_done_due_lag_rate_score_and_errors():
    lines = shown(live_view(status())).splitlines()
    assert lines[1].split() == ["model", "environment", "done", "due", "lag", "per", "day", "score", "errors"]
    assert lines[2].split() == ["acme/model-1@main", "affine:sat", "8", "10", "0s", "300", "0.750", "2"]
    assert lines[3].split() == ["agentgym:babyai", "8", "10", "40s", "300", "0.750", "2"]
    assert len(lines) == 9


def test_models_that_wait_are_named_with_their_reason_and_many_are_counted():
    waiting = [
        replace(model(n), is_paused=True, pause_reason=f"it has used {n} of 9 tokens of 24 h") for n in range(1, 9)
    ]
    view = status(models=tuple(waiting))
    lines = shown(live_view(view)).splitlines()[-6:]
    assert lines[0].strip() == "acme/model-1@main waits: it has used 1 of 9 tokens of 24 h"
    assert lines[-1].strip() == "and 3 more models"
    assert status_lines(view)[-6:] == [line.rstrip() for line in lines]


def test_too_many_pairs_show_those_furthest_behind_and_sum_up_the_rest():
    text = shown(live_view(status(), max_rows=2))
    assert "2m 00s" in text
    assert "1m 20s" in text
    assert "40s" not in text
    assert "4 more pairs of model and environment are not shown; all together 48 of 60 done" in text


def test_names_are_neither_markup_nor_escapes():
    pair = replace(status().pairs[0], model="acme/[red]x[/red]\x1b[31m@main")
    text = shown(live_view(status(pairs=(pair,), models=(model(1),))))
    assert "acme/[red]x[/red]\\x1b[31m@main" in text


def test_before_the_first_score_there_is_a_dash():
    pair = replace(status().pairs[0], scored=0, score_sum=0.0)
    assert shown(live_view(status(pairs=(pair,)))).splitlines()[2].split()[-2] == "-"


def test_plain_lines_hold_every_pair_without_colours():
    lines = status_lines(status())
    assert len(lines) == 8
    assert lines[1] == (
        "model=acme/model-1@main environment=affine:sat done=8 due=10 lag_s=0 rate_per_day=300 score=0.750 errors=2"
    )
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (42.9, "42s"), (200, "3m 20s"), (18_120, "5h 02m"), (183_600, "2d 03h")],
)
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


def test_episodes_that_wait_for_their_provider_are_named_beside_the_workers():
    moment = status()
    waiting = replace(moment, workers=replace(moment.workers, parked=3))
    assert "wait for providers" not in status_line(moment)
    assert "busy, 3 wait for providers)" in status_line(waiting)
