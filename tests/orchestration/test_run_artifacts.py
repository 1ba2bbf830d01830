"""Artifacts of flow runs on a real Prefect server: each is made once."""

from __future__ import annotations

import asyncio

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from headgate.orchestration.artifacts import Outage, ProgressArtifact


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
