"""Every block keeps the conventions of Prefect's own collections."""

from __future__ import annotations

import inspect
import re
import tomllib

import pytest
from prefect.blocks.core import Block
from pydantic import BaseModel, SecretStr

import blocks
from tests.house.tree import ROOT

BLOCKS = sorted(
    (found for _, found in inspect.getmembers(blocks, inspect.isclass) if issubclass(found, Block)),
    key=lambda block: block.__name__,
)
MODELS = [
    *BLOCKS,
    *(m for _, m in inspect.getmembers(blocks, inspect.isclass) if issubclass(m, BaseModel) and m not in BLOCKS),
]


def test_all_blocks_are_found() -> None:
    names = ["AdmissionLimits", "JobQueueServer", "JudgeRubric", "ModelEndpoint", "ModelRoster", "RayCluster"]
    assert [block.__name__ for block in BLOCKS] == [*names, "ReportStore", "SampleStore"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
class TestBlock:
    def test_its_description_says_what_it_is_in_a_sentence(self, block: type[Block]) -> None:
        description = block.get_description()
        assert description
        assert description.endswith(".")

    def test_its_description_names_a_section_of_the_documentation_that_exists(self, block: type[Block]) -> None:
        page, _, anchor = re.search(r"See (docs/[\w/-]+\.md)(#)([a-z-]+)\.", block.get_description() or "").groups()  # type: ignore[union-attr]
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def test_its_slug_is_its_own_and_stays(self, block: type[Block]) -> None:
        assert re.fullmatch(r"headgate-[a-z]+(-[a-z]+)*", block.get_block_type_slug())
        assert "_block_type_slug" in vars(block)

    def test_its_example_imports_and_loads_it(self, block: type[Block]) -> None:
        example = block.get_code_example() or ""
        assert f"from blocks import {block.__name__}" in example
        assert f'{block.__name__}.load("BLOCK_NAME")' in example

    def test_its_example_is_python(self, block: type[Block]) -> None:
        code = re.search(r"```python\n(.*?)```", block.get_code_example() or "", re.DOTALL)
        assert code
        compile(code[1], block.__name__, "exec", flags=0x2000)  # PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_has_a_title_and_a_description_that_is_a_sentence(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        assert field.title, name
        assert field.description, name
        assert field.description.endswith("."), name


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_no_field_hides_a_secret_where_the_api_would_show_it(block: type[Block]) -> None:
    for name, field in block.model_fields.items():
        annotation = str(field.annotation)
        # Prefect masks a SecretStr of its own, and returns those inside of a dict or of blocks in a list as they are.
        assert "dict[str, pydantic.types.SecretStr]" not in annotation, name
        assert not re.search(
            r"(list|dict|tuple)\[.*blocks\.\w+\.(ModelEndpoint|SampleStore|ReportStore|JobQueueServer)", annotation
        ), name
        if re.search(r"key|secret|token|password", name):
            assert field.annotation is SecretStr, name


def test_prefect_finds_the_blocks_as_those_of_its_own_integrations() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["prefect.collections"] == {"headgate": "blocks"}
