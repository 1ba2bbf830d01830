"""Drawn loads: their courses, and what is refused."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

import pytest

from headgate_replay.elastic import SHAPES, Call, InvalidLoadError, ReplayOrder, drawn, load_of


def per_minute(load) -> list[int]:
    counts = [0] * math.ceil(load.window_s / 60)
    for call in load.calls:
        counts[int(call.arrived_s // 60)] += 1
    return counts


@pytest.mark.parametrize("shape", SHAPES)
def test_one_seed_draws_one_load_of_log_normal_service(shape: str) -> None:
    load = drawn(shape, seed=1)
    assert load == drawn(shape, seed=1)
    assert load != drawn(shape, seed=2)
    assert load.window_s == 3600
    assert fmean(call.steps for call in load.calls) == pytest.approx(10.0, rel=0.1)
    assert pstdev(math.log(call.steps) for call in load.calls) == pytest.approx(1.0, rel=0.05)


def test_a_smooth_load_varies_less_than_a_bursty_one() -> None:
    smooth, bursty = (per_minute(drawn(shape, seed=1)) for shape in ("smooth", "bursty"))
    assert pstdev(smooth) / fmean(smooth) < 0.25
    assert pstdev(bursty) / fmean(bursty) > 0.4


def test_nothing_arrives_while_the_load_is_off_and_a_flash_crowd_comes_at_once() -> None:
    assert 0 in per_minute(drawn("on-off", seed=1))
    flash = per_minute(drawn("flash", seed=1))
    assert max(b / max(1, a) for a, b in zip(flash[:-2], flash[2:], strict=True)) > 3


def test_a_replay_names_a_shape_in_place_of_a_trace() -> None:
    order = ReplayOrder(trace="bursty", scale=0.1, seed=3)
    load = order.load()
    assert load == drawn("bursty", seed=3, scale=0.1)
    assert [site.awake for site in order.sites(load)] == [1, 1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: drawn("burst"), "no shape 'burst'"),
        (lambda: drawn("smooth", scale=0), r"must be a number > 0 \(got 0\)"),
        (lambda: drawn("smooth", scale=math.inf), r"must be a number > 0 \(got inf\)"),
        (lambda: drawn("smooth", scale=1e-6), "smooth has no request"),
        (lambda: load_of("l", [Call(0.0, 0.0, math.inf)], slots=1), r"must be numbers >= 0 \(got .* steps inf\)"),
        (lambda: load_of("l", [Call(math.nan, 0.0, 1.0)], slots=1), r"\(got arrival nan s"),
    ],
    ids=["shape", "no length", "without end", "too short", "never ends", "never arrives"],
)
def test_what_makes_no_load_is_refused(make, says: str) -> None:
    with pytest.raises(InvalidLoadError, match=says):
        make()
