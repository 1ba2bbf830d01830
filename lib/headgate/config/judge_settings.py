"""The settings of campaigns whose answers a judge reads."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field, SecretStr, field_validator

from headgate.config.aliases import own_name


class JudgeSettings(BaseModel):
    """Which model judges, how it is asked, and how many answers may wait for it."""

    judge_model: str = Field(
        "",
        validation_alias=own_name("JUDGE_MODEL"),
        description="Name of the model that judges answers, as its endpoint calls it.",
    )
    judge_url: str = Field(
        "",
        validation_alias=own_name("JUDGE_URL"),
        description="Base URL of the judge's OpenAI-compatible endpoint, up to and including /v1.",
    )
    judge_key: SecretStr = Field(
        SecretStr(""), validation_alias=own_name("JUDGE_KEY"), description="API key of the judge's endpoint."
    )
    judge_parallel: int = Field(
        8,
        ge=1,
        le=100_000,
        validation_alias=own_name("JUDGE_PARALLEL"),
        description="Maximum number of the judge's requests in flight.",
    )
    judge_options: dict[str, Any] = Field(
        default_factory=dict,
        validation_alias=own_name("JUDGE_OPTIONS"),
        description='Further fields of each request to the judge, as JSON, e.g. {"temperature": 0}.',
    )
    judgements: int = Field(
        1, ge=1, le=15, validation_alias=own_name("JUDGEMENTS"), description="How often each answer is judged."
    )
    rubric: str = Field(
        "",
        validation_alias=own_name("RUBRIC"),
        description="YAML file of a rubric that answers are judged by, in place of the environments' own rules.",
    )
    max_unjudged: int = Field(
        2_000,
        ge=1,
        le=100_000,
        validation_alias=own_name("MAX_UNJUDGED"),
        description="Samples in progress at most, those that wait for the judge included; then no further one begins.",
    )

    @field_validator("judge_url")
    @classmethod
    def _is_base_url(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("judge_url must be an http or https address")
        return value

    @field_validator("judge_options", mode="before")
    @classmethod
    def _read_options(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "{}")
        except ValueError as error:
            raise ValueError(f"judge_options must be a JSON object: {error}") from None
