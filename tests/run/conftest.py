"""Fixtures of the campaign tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.run import learning
from tests.run.run_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal")


@pytest.fixture
def day_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a run share what it learns of limits less often: alone it learns nothing, 17 280 times in a simulated day."""
    monkeypatch.setattr(learning, "SHARE_EVERY_S", 300.0)
