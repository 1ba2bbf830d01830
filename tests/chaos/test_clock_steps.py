"""The clock is set between kills, ahead and back, by minutes and by years: nothing is lost, doubled or stopped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headgate.storage import open_store
from tests.chaos.campaign_process import Place
from tests.chaos.test_runner_kills import endpoint

__all__ = ["endpoint"]

# In short: `tests/run/test_clock_steps.py` sets the clock between starts, `test_runner_kills.py` kills.
pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1_800)]

STEPS_S = (2 * 86_400.0, -2 * 86_400.0, 600.0, -3_600.0, 400 * 86_400.0, -400 * 86_400.0)


async def test_starts_by_wrong_clocks_lose_double_and_stop_nothing(
    tmp_path: Path, endpoint: str, kills: int, chaos_seed: int
) -> None:
    place = Place(tmp_path, endpoint, str(tmp_path / "samples"), settings=("sink_batch_size=20",))
    rng = random.Random(chaos_seed)
    for point in range(kills):
        ahead_s = STEPS_S[point] if point < len(STEPS_S) else rng.uniform(-1_000, 1_000) * 86_400.0
        wrong = place.start(module="tests.chaos.stepped_clock", variables={"CLOCK_AHEAD_S": str(ahead_s)})
        wrong.wait_for_samples()
        wrong.kill_after(rng.uniform(0.0, 1.0))
        right = place.start()
        right.wait_for_samples(at_least=200)  # more than the other left open
        right.kill_after(rng.uniform(0.0, 1.0))
    assert place.drain() == 0
    place.assert_nothing_lost_or_doubled((await open_store(place.store).scan()).frame)
