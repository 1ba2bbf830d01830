"""Every page that tells a reader what to type is followed: its files and commands, in order, word by word."""

from __future__ import annotations

import re
from typing import Final

import pytest

from headgate.models.local_model import is_local_model_installed
from tests.docs.pages import blocks
from tests.docs.terminal import terminal
from tests.docs.walks import (
    CHANGED,
    EXCLUDED,
    GIVEN,
    LANGUAGES,
    PARTS,
    STATUSES,
    UNTIL_STOPPED,
    Walk,
    commands_of,
    follow,
    is_of,
    walks,
)

QUICK: Final = frozenset(
    {
        "README.md: Evaluate your models",
    }
)
"""What `make test` follows; `make test-long` follows the others, which take longer."""

ELSEWHERE: Final = frozenset({"docs/how-to/prefect.md: Sample on a schedule", "docs/how-to/exchange.md"})
"""Walks of `test_prefect_walk.py` and `test_exchange.py`, which look at what they end with."""

_WITHOUT_MODEL: Final = pytest.mark.skipif(
    not is_local_model_installed(), reason="`make setup-model` installs the small model"
)


def _walks() -> list[object]:
    return [
        pytest.param(
            walk,
            id=walk.name,
            marks=[
                *([] if walk.name in QUICK else [pytest.mark.long]),
                *([_WITHOUT_MODEL] if walk.page == "docs/how-to/checkpoints.md" else []),
            ],
        )
        for walk in walks()
        if walk.name not in ELSEWHERE
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("walk", _walks())
def test_a_page_does_what_it_says(walk: Walk) -> None:
    with terminal() as typed:
        follow(walk, typed)
        typed.stop()


@pytest.mark.parametrize("page", PARTS)
def test_every_command_of_a_page_is_in_one_of_its_parts(page: str) -> None:
    parts = [section for sections in PARTS[page] for section in sections]
    written = {block.section for block in blocks(*LANGUAGES) if block.page == page}
    assert sorted(parts) == sorted(written - {""}), "`make demo` and `make test` stand before the first section"


def test_the_names_of_walks_in_the_tables_are_those_of_walks() -> None:
    assert QUICK | ELSEWHERE | set(GIVEN) <= {walk.name for walk in walks()}


def test_every_exclusion_and_change_still_has_something_on_its_page() -> None:
    followed = [block for walk in walks() for block in walk.blocks()] + [b for b in blocks("bash") if not b.section]
    commands = [(block, command) for block in followed if not block.title for command in commands_of(block.code)]
    unused = [row for row in EXCLUDED if not any(is_of(row, b) and re.search(row.pattern, c) for b, c in commands)]
    unused += [row for row in CHANGED if not any(is_of(row, b) and row.old in b.code for b in followed)]
    unused += [row for row in STATUSES if row not in {(block.page, command) for block, command in commands}]
    unused += [row for row in UNTIL_STOPPED if not any(re.search(row.pattern, c) for _, c in commands)]
    assert unused == []
