from __future__ import annotations

import pytest

from headgate.reports.figures import activity_figure, latency_figure, samples_figure
from headgate.reports.report import checked_samples
from headgate.reports.svg import short_name
from tests.reports.factories import START, frame, lost, row


def spans(*bounds):
    rows = [
        row(number, started_at=START + begun, finished_at=START + ended) for number, (begun, ended) in enumerate(bounds)
    ]
    return checked_samples(frame(*rows))


def test_the_bars_hold_every_sample_once():
    samples = spans(*((60 * number, 60 * number + 30) for number in range(500)))
    bars = samples_figure(samples).axes[0].patches
    assert sum(bar.get_height() for bar in bars) == 500
    assert len(bars) <= 61


def test_the_rarest_of_many_environments_are_shown_together():
    rows = [row(number, environment=f"test:env-{number % 12}") for number in range(240)]
    axes = samples_figure(checked_samples(frame(*rows))).axes[0]
    labels = axes.get_legend_handles_labels()[1]
    assert len(labels) == 8
    assert labels[-1] == "other"
    assert sum(bar.get_height() for bar in axes.patches) == 240


def test_episodes_in_progress_are_worker_seconds_by_width():
    samples = spans((0, 40), (10, 40), (20, 25), (0, 0))
    values, edges, _ = activity_figure(samples).axes[0].patches[0].get_data()
    width = 1
    assert sum(values) * width == pytest.approx(40 + 30 + 5)
    assert max(values) == 3
    assert len(edges) == len(values) + 1


@pytest.mark.parametrize(
    ("span_s", "unit"),
    [
        (30, "samples per s"),
        (3600, "samples per 5 min"),
        (86_400, "samples per 30 min"),
        (30 * 86_400, "samples per d"),
    ],
)
def test_buckets_are_of_a_width_that_people_use(span_s, unit):
    assert samples_figure(spans((0, 1), (span_s - 1, span_s))).axes[0].get_ylabel() == unit


def test_time_marks_are_round_and_few():
    axes = samples_figure(spans((0, 1), (4 * 3600, 4 * 3600 + 1))).axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["20 Nov 01:00", "01:30", "02:00", "02:30", "03:00", "03:30", "04:00", "04:30"]


def test_unscored_samples_have_no_latency():
    assert latency_figure(checked_samples(frame(lost(1))), ["acme/strong@main"]) is None


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("acme/small@main", "acme/small"),
        ("acme/small@0123456789abcdef", "acme/small@01234567"),
        ("organisation/a-model-with-a-rather-long-name@main", "organisation/a-m…-rather-long-name"),
        ("acme/ü@main", "acme/\\xfc"),
    ],
)
def test_names_on_axes_are_short(key, shown):
    assert short_name(key) == shown
