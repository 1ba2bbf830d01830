"""From files to a load and a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_replay.elastic import (
    Call,
    Hardware,
    InvalidLoadError,
    ReplayOrder,
    load_of,
    replay_page,
    roomy_site,
    traced_load,
)

TIMES = """model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel
small,gpu,100,1,128,1000,10,1
small,gpu,100,4,128,1000,20,1
"""


def files(folder: Path) -> tuple[Path, Path]:
    rows = [f"2023-11-16 18:17:{at:02}.0,100,100" for at in range(0, 60, 2)]
    trace, times = folder / "trace.csv", folder / "times.csv"
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    times.write_text(TIMES)
    return trace, times


def test_a_trace_is_multiplied_until_it_has_work_for_several_workers(tmp_path: Path) -> None:
    trace, times = files(tmp_path)
    hardware = Hardware("small", "gpu", 1)
    once = traced_load(trace, times, hardware=hardware, slots=4, copies=1)
    load = traced_load(trace, times, hardware=hardware, slots=4, mean_workers=3.0)
    assert once.work_s / once.window_s < 3.0 <= load.work_s / load.window_s
    copies = len(load.calls) // len(once.calls)
    assert len(load.calls) == copies * len(once.calls)
    assert (copies - 1) * once.work_s / once.window_s < 3.0
    assert any(f"{copies} copies" in note for note in load.notes)


@pytest.mark.parametrize(("workers", "expected"), [(2, 3), (16, 16)])
def test_a_site_has_room_for_the_highest_moment(workers: int, expected: int) -> None:
    calls = [Call(0.0, 0.0, 120.0), Call(1.0, 0.0, 120.0), *(Call(100.0, 0.0, 10.0) for _ in range(4))]
    load, site = roomy_site(load_of("peak", calls, slots=2), start_s=5.0, workers=workers)
    assert (site.workers, site.awake, site.start_s) == (expected, 2, 5.0)
    assert f"{expected} workers, 2 of them awake at the start" in load.notes[-1]


@pytest.mark.parametrize("seconds", [(0,), (0, 0, 0), (0, 90_000)], ids=["one request", "all at once", "25 hours"])
def test_a_trace_of_any_length_is_replayed(tmp_path: Path, seconds: tuple[int, ...]) -> None:
    trace, times = tmp_path / "trace.jsonl", files(tmp_path)[1]
    row = '{{"timestamp": {}, "input_length": 100, "output_length": 100}}\n'
    trace.write_text("".join(row.format(1_000 * at) for at in seconds))
    given = {"service_times": times, "model": "small", "hardware": "gpu", "gpus": 1, "policies": ["target"]}
    order = ReplayOrder(trace=str(trace), starts_s=[5.0], **given)
    load = order.load()
    (made,) = order.comparisons(load, order.sites(load), lambda _: None)
    assert None not in made.outcomes[0].done_s
    assert "nan" not in replay_page([made]).lower()


def test_a_trace_whose_times_are_in_another_unit_is_refused_instead_of_replayed_for_hours(tmp_path: Path) -> None:
    trace, times = tmp_path / "trace.jsonl", files(tmp_path)[1]
    row = '{{"timestamp": {}, "input_length": 100, "output_length": 100}}\n'
    trace.write_text(row.format(0) + row.format(3_600_000_000))
    with pytest.raises(InvalidLoadError, match=r"must end within 31 days of its first request \(got 41.7 days\)"):
        traced_load(trace, times, hardware=Hardware("small", "gpu", 1), copies=1)
