"""kill -9 of a run while it submits, polls and collects batches: nothing is lost, and nothing asked twice."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from headgate.storage import open_store
from tests.chaos.campaign_process import Place
from tests.run.batch_provider import Handler, provider

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_800)]

_log = logging.getLogger(__name__)


@pytest.mark.long
async def test_kills_while_batches_are_submitted_polled_and_collected_lose_and_repeat_nothing(
    tmp_path: Path, kills: int, chaos_seed: int
) -> None:
    rng = random.Random(chaos_seed)
    async with provider() as served:
        hit = asyncio.Event()

        async def slowly(http: web.Request, handler: Handler) -> web.StreamResponse:
            """Leave time to be killed in before and after each step of a batch."""
            hit.set()
            await asyncio.sleep(rng.uniform(0.0, 0.1))
            answer = await handler(http)
            await asyncio.sleep(rng.uniform(0.0, 0.1))
            return answer

        served.wrong = slowly
        place = Place(
            tmp_path,
            served.base_url,
            str(tmp_path / "samples"),
            rates="affine:sat=400000",
            settings=("sink_batch_size=20", "lane_batch_wait_s=0.3", "lane_poll_s=0.05", "lane_batch_requests=10"),
            models=f"  - {{name: m, base_url: '{served.base_url}', lane: batch}}",
        )
        for point in range(kills):
            run = place.start()
            hit.clear()
            if point % 5 != 4:  # every fifth dies while it starts, or before it has asked for anything
                async with asyncio.timeout(120):
                    await hit.wait()
            await asyncio.to_thread(run.kill_after, rng.uniform(0.0, 1.5))
        served.wrong = None
        assert await asyncio.to_thread(place.drain, 5) == 0
        frame = (await open_store(place.store).scan()).frame
        place.assert_nothing_lost_or_doubled(frame)
        asked = Counter(custom_id for ids in served.created.values() for custom_id in ids)
        _log.info(
            "%d kills: %d samples acknowledged, %d stored, %d batches of %d requests, %d asked at once",
            kills, len(place.acknowledged), len(frame), len(served.created), asked.total(), served.now.total(),
        )  # fmt: skip
        assert max(asked.values()) == 1, "nothing that the provider acknowledged is asked twice"
        assert not served.now, "nor by itself"
        assert len(frame) > 5 * kills
        assert set(frame["lane"].to_list()) == {"batch"}
        assert frame["error_kind"].null_count() == len(frame)
