"""A connection that was closed."""

from __future__ import annotations

import pytest

from headgate.placement.cluster.link import LedgerLink
from headgate.placement.errors import LedgerUnreachableError


def test_a_closed_connection_says_so_and_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    link = object.__new__(LedgerLink)
    monkeypatch.setattr("headgate.placement.cluster.link.ray.is_initialized", lambda: False)
    with pytest.raises(LedgerUnreachableError, match="connection is closed and cannot ask for stats"):
        link.ask("stats")
