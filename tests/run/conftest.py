"""Fixtures of the campaign tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.run_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal")
