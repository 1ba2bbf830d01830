"""The measuring of the store itself: it runs, and measures what it says."""

from __future__ import annotations

from pathlib import Path

from headgate.storage.schema import frame_of, validated
from headgate_bench.store_speed import example_samples, measure_store


def test_example_samples_hold_the_rules_and_are_the_same_every_time() -> None:
    samples = example_samples(200, 8)
    assert validated(frame_of(samples)).bad.height == 0
    assert samples == example_samples(200, 8)
    assert len({sample.environment for sample in samples}) == 8


def test_measuring_gives_figures_and_leaves_nothing(tmp_path: Path) -> None:
    found = measure_store(rows=400, batch_rows=30, environments=3, runs=1, folder=tmp_path)
    assert (found.rows, found.batch_rows, found.batch_environments) == (400, 30, 3)
    assert min(found.frame_rows_per_s, found.validated_rows_per_s, found.stored_rows_per_s) > 0
    assert min(found.batch_ms, found.batch_cpu_us_per_sample) > 0
    assert list(tmp_path.iterdir()) == []
