"""What the pages say about elastic pools is so: their files, routes, commands, and the tests that they name."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from headgate.cli import build_app
from headgate.elastic import ElasticConfig, WorkerState, elastic_config
from headgate.elastic.gateway import read_pool_document
from headgate.elastic.service import ELASTIC_METRICS
from tests.docs.pages import DOCS, Block, blocks, commands, headings
from tests.elastic.gateway.door import opened
from tests.house.tree import ROOT

PAGES = ("docs/how-to/elastic.md", "docs/reference/elastic-engines.md")


def _documents(*keys: str) -> list[Block]:
    """Return the blocks of YAML on the pages of elastic pools that have one of these sections."""
    pages = [block for block in blocks("yaml") if block.page in PAGES]
    return [block for block in pages if set(keys) & set(yaml.safe_load(block.code))]


@pytest.mark.parametrize("block", _documents("pool"), ids=lambda b: f"{b.page}:{b.line}")
def test_the_files_of_pools_on_the_pages_are_files_of_pools(block: Block) -> None:
    from headgate.orchestration.elastic.forms import checked_actors, checked_placement

    pool_file = read_pool_document(yaml.safe_load(block.code))
    assert pool_file.pool.engines
    for actors in pool_file.actors:
        checked_actors(actors)
    if pool_file.placement is not None:
        checked_placement(pool_file.placement)


@pytest.mark.parametrize("block", _documents("rules"), ids=lambda b: f"{b.page}:{b.line}")
def test_the_rules_of_placement_on_the_pages_are_rules(block: Block) -> None:
    from headgate.placement import checked_rules

    assert checked_rules(**yaml.safe_load(block.code)["rules"])


def test_the_class_of_an_engine_on_the_pages_has_what_an_engine_needs() -> None:
    from headgate.orchestration.elastic.workers import checked_class

    block = next(b for b in blocks("python") if "def abort" in b.code and "json.loads" in b.code)
    names: dict[str, Any] = {}
    exec(compile(block.code, f"{block.page}:{block.line}", "exec", dont_inherit=True), names)
    assert checked_class(names["Rollout"], "engines:Rollout").__name__ == "Rollout"


async def test_the_routes_on_the_page_are_those_of_the_gateway() -> None:
    async with opened() as door:
        served = {
            f"{route.method} {route.resource.canonical}"
            for route in door.gateway.application().router.routes()
            if route.method != "HEAD" and route.resource is not None
        }
    text = (DOCS / "reference/elastic.md").read_text()
    assert set(re.findall(r"^\| `((?:GET|POST|DELETE) [^`]+)` \|", text, re.MULTILINE)) == served


def test_every_setting_state_and_metric_is_on_the_page() -> None:
    text = (DOCS / "reference/elastic.md").read_text()
    assert [name for name in ElasticConfig.model_fields if f"| `{name}` |" not in text] == []
    assert [state for state in WorkerState if f"| `{state}` |" not in text] == []
    assert set(ELASTIC_METRICS) <= headings("reference/elastic.md")


def test_every_setting_that_the_pages_name_exists() -> None:
    pages = "\n".join((ROOT / page).read_text() for page in PAGES)
    written = re.findall(r"`(\w+): [\w.]+`", pages)
    assert "queue_timeout" in written
    assert [name for name in written if name not in ElasticConfig.model_fields and name != "role"] == []
    assert elastic_config({"queue_timeout": None, "max_losses": 1, "enable_elastic": False})


def test_every_command_is_shown_in_use() -> None:
    used = [words for where, words in commands("headgate") if where.split(":")[0] in PAGES]
    shown = {words[1] for words in used if words[:1] == ["elastic"] and len(words) > 1}
    assert {name for name in build_app()["elastic"] if not name.startswith("-")} <= shown
