"""The `JudgeRubric` block: what a judge looks for, edited in the Prefect UI."""

from __future__ import annotations

from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import BaseModel, ConfigDict, Field, model_validator

from headgate.core import errors
from headgate.environments.rubric import Rubric, rubric_of


class RubricCriterion(BaseModel):
    """One criterion of a rubric."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(
        default=...,
        title="Criterion",
        description='What a good answer does, in one sentence; words in double quotes are ones that it "uses".',
        min_length=1,
        max_length=4_000,
    )
    points: float = Field(
        default=1.0, gt=0, le=1_000_000, title="Points", description="Its weight relative to the other criteria."
    )


class JudgeRubric(Block):
    """What a judge looks for in answers: criteria with points, and a pass mark. See docs/how-to/judge.md#rubric.

    Examples:
        ```python
        from blocks import JudgeRubric

        rubric = (await JudgeRubric.load("BLOCK_NAME")).rubric()
        ```
    """

    _block_type_name: ClassVar[str] = "Judge Rubric"
    _block_type_slug: ClassVar[str] = "headgate-judge-rubric"
    _logo_url: ClassVar[Any] = None

    name: str = Field(
        default=...,
        title="Name",
        description="Part of the name that its samples are counted under.",
        min_length=1,
        max_length=100,
    )
    criteria: list[RubricCriterion] = Field(
        default=...,
        title="Criteria",
        description='What counts, e.g. [{"text": "names the cause", "points": 2}, {"text": "is short"}].',
        min_length=1,
        max_length=50,
    )
    pass_mark: float = Field(
        default=0.7, ge=0, le=1, title="Pass mark", description="Share of the points that an answer needs to pass."
    )
    instructions: str = Field(
        default="", title="Instructions", description="Further instructions to the judge.", max_length=4_000
    )

    @model_validator(mode="after")
    def _can_be_used(self) -> JudgeRubric:
        try:
            self.rubric()
        except errors.HeadgateError as error:
            raise ValueError(str(error)) from None
        return self

    def rubric(self) -> Rubric:
        """Return the rubric.

        Raises:
            InvalidInputError: if it breaks a rule of rubrics.
        """
        return rubric_of(self.model_dump(include={"name", "criteria", "pass_mark", "instructions"}))
