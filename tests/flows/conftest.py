"""Fixtures of the flows' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.places import Places


@pytest.fixture
def places(tmp_path: Path, roster_file: Path) -> Places:
    """A campaign of its own with two baseline agents."""
    return Places(tmp_path, roster_file)
