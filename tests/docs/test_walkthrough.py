"""The walk through the code names files and definitions that are there, and few enough to read at one sitting."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.tree import ROOT

PAGE = (ROOT / "docs/design/walkthrough.md").read_text()
STEPS = re.findall(r"^### \d+\. [^`]*`(lib/[\w/]+\.py)`\n\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
MOST_FILES = 25


def _defined(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_walk_is_short() -> None:
    assert len(STEPS) == len(re.findall(r"^### ", PAGE, re.MULTILINE))
    assert len({path for path, _ in STEPS}) <= MOST_FILES


@pytest.mark.parametrize(("path", "text"), STEPS, ids=[path for path, _ in STEPS])
def test_every_name_of_a_step_is_in_its_file(path: str, text: str) -> None:
    names = re.findall(r"`(\w+)`", text)
    assert names
    assert [name for name in names if name not in _defined(path)] == []
