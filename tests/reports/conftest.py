"""What tests of reports share."""

from __future__ import annotations

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures out of reports of which only words and numbers are looked at: they take nearly all the time."""
    monkeypatch.setattr("headgate.reports.report._figures", lambda *_: {})
