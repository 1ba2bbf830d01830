"""Limits per minute of a roster block: the same as those of a roster file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from blocks import ModelEndpoint, ModelRoster
from headgate.sampling import FileRoster

URL = "http://127.0.0.1:8001/v1"
ENTRY = {
    "name": "alpha",
    "requests_per_minute": 500,
    "output_tokens_per_minute": 8_000,
    "key_limits": {"input_tokens_per_minute": 40_000},
    "organisation": "acme",
}
ORGANISATIONS = {"acme": {"tokens_per_minute": 2_000_000}}


async def test_a_file_and_a_block_give_the_same_limits_per_minute(tmp_path: Path) -> None:
    path = tmp_path / "roster.yaml"
    models = [ENTRY | {"base_url": URL}, {"name": "beta", "base_url": URL}]
    path.write_text(yaml.safe_dump({"models": models, "organisations": ORGANISATIONS}))
    block = ModelRoster.model_validate(
        {"endpoint": ModelEndpoint(base_url=URL), "models": [ENTRY, {"name": "beta"}], "organisations": ORGANISATIONS}
    )
    by_file, by_block = await FileRoster(path).load(), await block.source().load()
    assert [model.rates for model in by_block.models] == [model.rates for model in by_file.models]
    assert [model.rates.is_any for model in by_block.models] == [True, False]


def test_an_organisation_that_the_block_does_not_have_is_refused() -> None:
    with pytest.raises(ValidationError, match="got 'acme'; known: other"):
        ModelRoster.model_validate({"models": [ENTRY], "organisations": {"other": {}}})


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        ModelRoster.model_validate({"models": [{"name": "alpha", "tokens_per_minute": 0}]})
