"""The pages hold together: they build offline, their code compiles, their commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, blocks, commands
from tests.house.tree import ROOT


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3_000:]
    page = (tmp_path / "index.html").read_text()
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page)
    assert loaded == []


def test_every_page_is_in_the_navigation() -> None:
    def pages_of(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        inner = entry.values() if isinstance(entry, dict) else entry
        assert isinstance(inner, list) or inner
        return [page for part in inner for page in pages_of(part)]

    nav = set(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert nav == {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}


@pytest.mark.parametrize("block", blocks("python"), ids=lambda b: f"{b.page}:{b.line}")
def test_python_in_the_documentation_compiles(block) -> None:
    compile(block.code, f"{block.page}:{block.line}", "exec", flags=0)


@pytest.mark.parametrize("block", blocks("yaml", "json"), ids=lambda b: f"{b.page}:{b.line}")
def test_data_in_the_documentation_parses(block) -> None:
    parsed = json.loads(block.code) if block.language == "json" else yaml.safe_load(block.code)
    assert parsed is not None


def test_make_targets_that_the_documentation_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [(where, words[0]) for where, words in commands("make") if words]
    assert named
    assert [(where, target) for where, target in named if target not in targets] == []
