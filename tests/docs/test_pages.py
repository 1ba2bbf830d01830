"""The pages hold together: they build offline, their code compiles, their commands exist."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from cyclopts import App, CycloptsError, MissingArgumentError

from headgate.cli import build_app
from tests.docs.pages import DOCS, blocks, commands, headings
from tests.house.tree import ROOT


@pytest.mark.long  # `make check` builds it strictly, too
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    # Without --quiet, under which no warning is one.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3_000:]
    page = (tmp_path / "index.html").read_text()
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page)
    assert loaded == []
    # Opened as files, pages search through a script in place of what a server would send, by a worker that is no file.
    assert (tmp_path / "search/search_index.js").read_text().startswith("var __index = {")
    (shim,) = re.findall(r'<script src="([^"]*shim[^"]*)"', page)
    assert (tmp_path / shim).is_file()


def test_every_page_is_in_the_navigation() -> None:
    def pages_of(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        inner = entry.values() if isinstance(entry, dict) else entry
        assert isinstance(inner, list) or inner
        return [page for part in inner for page in pages_of(part)]

    nav = set(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert nav == {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}


def test_python_in_the_documentation_compiles() -> None:
    for block in blocks("python"):
        compile(block.code, f"{block.page}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_data_in_the_documentation_parses() -> None:
    wrong = {}
    for block in blocks("yaml", "json"):
        try:
            assert (json.loads if block.language == "json" else yaml.safe_load)(block.code) is not None
        except (AssertionError, ValueError, yaml.YAMLError) as error:
            wrong[f"{block.page}:{block.line}"] = error
    assert wrong == {}


def test_make_targets_that_the_documentation_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [(where, words[0]) for where, words in commands("make") if words]
    assert named
    assert [(where, target) for where, target in named if target not in targets] == []


@cache
def _app() -> App:
    return build_app()


def _commands_of(app: App) -> dict[str, App]:
    return {name: app[name] for name in app if not name.startswith("-")}


def test_commands_of_the_documentation_are_understood() -> None:
    written = {tuple(words): where for where, words in commands("headgate")}
    wrong = []
    for words, where in written.items():
        # In place of what a usage line leaves to the reader.
        given = [re.sub(r"^[A-Z][A-Z_]+$", "1", word) for word in words]
        try:
            _app().parse_args(given, exit_on_error=False, print_error=False)
        except MissingArgumentError:
            pass  # the text names a command without what it is to be given
        except CycloptsError as error:
            wrong.append(f"{where}: headgate {' '.join(words)}: {error}")
    assert len(written) > 100
    assert wrong == []


def test_every_command_has_its_heading() -> None:
    app = _app()
    names = {f"headgate {name}" for name in _commands_of(app)}
    names |= {f"headgate config {name}" for name in _commands_of(app["config"])}
    names |= {f"headgate limits {name}" for name in _commands_of(app["limits"])}
    assert {"headgate run", "headgate config show"} <= names
    assert names <= headings("reference/cli.md")


def test_every_command_is_named_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert [name for name in _commands_of(_app()) if f"`{name}" not in text and f"`headgate {name}" not in text] == []
