"""The flow `arena`, run in this process against a real server."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from blocks import JudgeRubric, ModelEndpoint
from flows.comparison import arena
from headgate.core import errors
from tests.flows.api import artifacts_of, newest_run
from tests.flows.places import Places


async def test_ratings_are_artifacts_and_nothing_is_asked_twice(
    prefect: object, places: Places, baselines: str
) -> None:
    judge = f"judge-{uuid4().hex[:8]}"
    await ModelEndpoint(base_url=baselines, served_name="baseline-judge", max_parallel=4).asave(judge)
    rubric = f"rubric-{uuid4().hex[:8]}"
    await JudgeRubric(name="the", criteria=[{"text": 'says "the"'}]).asave(rubric)

    async def run(**fields: Any) -> dict[str, Any]:
        return await arena(judge=judge, settings=places.settings(), **fields)

    with pytest.raises(errors.InvalidInputError, match="no model has answers"):
        await run()
    first = await run(instances=12, title="First")
    assert (first["comparisons"], first["new"], first["unjudged"]) == (12, 12, 0)
    assert first["models"]["solver@main"]["rank"] == 1
    assert first["models"]["random@main"]["rank"] == 2
    published = await artifacts_of((await newest_run("First")).id)
    assert [row["model"] for row in published["arena-models"]] == ["solver@main", "random@main"]
    assert "Win share of the row against the column" in published["arena"]
    assert (await run())["new"] == 0
    assert (await run(rubric=rubric, comparisons=2))["comparisons"] == 2
