"""The pages that promise something name tests, and these exist."""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT

PAGES = ("docs/explanation/security.md", "docs/explanation/guarantees.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_promise_names_tests_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    places = set(re.findall(r"\btests/[\w/]+(?:\.py)?", text))
    assert not [place for place in places if not (ROOT / place).exists()]
    names = set(re.findall(r"`(test_\w+)`", text))
    assert places | names
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name in names if f"def {name}(" not in written]
