"""Artifacts of flow runs on a real Prefect server: each is made once, and says how fast the run goes."""

from __future__ import annotations

import asyncio

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from headgate.orchestration.artifacts import Outage, Pace, ProgressArtifact
from headgate.orchestration.phases import asset_key


async def test_an_artifact_whose_making_was_cancelled_is_updated_and_not_made_again(prefect: object) -> None:
    @flow
    async def publishing() -> None:
        await ProgressArtifact("made-first", Outage()).show(0.1, "the server knows the route")
        for number in range(12):
            artifact = ProgressArtifact(f"made-{number}", Outage())
            showing = asyncio.create_task(artifact.show(0.5, "half"))
            await asyncio.sleep(0.002 * number)
            showing.cancel()
            await asyncio.wait([showing])
            await artifact.show(1.0, "whole")

    await publishing()
    async with get_client() as client:
        for number in range(12):
            wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[f"made-{number}"]))
            (found,) = await client.read_artifacts(artifact_filter=wanted)
            assert float(found.data) == 100.0


def test_the_pace_of_a_run_says_its_rate_and_the_time_left() -> None:
    pace = Pace()
    pace.note(0.0, 0, 0.0)
    assert pace.words() == []
    pace.note(60.0, 30, 0.25)
    assert pace.words() == ["30.0 a minute", "about 3m 00s left"]
    pace.note(120.0, 30, 0.25)
    assert pace.words() == ["15.0 a minute", "about 6m 00s left"]


def test_the_pace_forgets_what_is_long_past_and_needs_no_end() -> None:
    pace = Pace()
    pace.note(0.0, 0, None)
    pace.note(1_000.0, 900, None)
    pace.note(1_060.0, 910, None)
    assert pace.words() == ["10.0 a minute"]


def test_the_key_of_an_asset_is_an_address_without_what_prefect_refuses() -> None:
    assert asset_key("s3://bucket/a b?c") == "s3://bucket/a-b-c"
    assert asset_key("/data/samples") == "file:///data/samples"
