"""The `JudgeRubric` block: what it accepts, and the rubric that it states."""

from __future__ import annotations

import uuid

import pytest
from pydantic import ValidationError

from blocks import JudgeRubric
from headgate.environments.rubric import Criterion, Rubric


async def test_a_saved_block_states_the_same_rubric_as_a_file(prefect: object) -> None:
    name = f"b-{uuid.uuid4().hex[:8]}"
    criteria = [{"text": "is short", "points": 2}, {"text": "is right"}]
    await JudgeRubric(name="r", criteria=criteria, pass_mark=0.5, instructions="Be fair.").asave(name)
    made = (await JudgeRubric.aload(name)).rubric()
    assert made == Rubric(
        name="r",
        criteria=(Criterion(text="is short", points=2.0), Criterion(text="is right")),
        pass_mark=0.5,
        instructions="Be fair.",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "r", "criteria": []},
        {"name": "r", "criteria": [{"text": "one\ntwo"}]},
        {"name": "r", "criteria": [{"text": "x", "points": 0}]},
        {"name": "../r", "criteria": [{"text": "x"}]},
        {"name": "r", "criteria": [{"text": "x"}], "pass_mark": 1.5},
        {"name": "r", "criteria": [{"text": "x", "weight": 1}]},
    ],
)
def test_what_is_no_rubric_cannot_be_saved(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        JudgeRubric(**fields)
