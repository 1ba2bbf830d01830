"""Fixtures of the campaign tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.run import learning
from headgate.run.budgets import sharing
from tests.run.run_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal")


@pytest.fixture
def day_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a run that is alone share less often what it learns and spends: nobody listens, 23 000 times in a day."""
    monkeypatch.setattr(learning, "SHARE_EVERY_S", 300.0)
    monkeypatch.setattr(sharing, "ALONE_EVERY_S", 120.0)
