"""Which cluster commands come to."""

from __future__ import annotations

import pytest

from headgate.cli.placement.ledger import there_already
from headgate.placement.errors import ClusterUnreachableError


def test_a_command_starts_no_cluster_that_would_have_no_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(ClusterUnreachableError, match="would start a new cluster"):
        there_already(None)
    with pytest.raises(ClusterUnreachableError, match="would start a new cluster"):
        there_already("local")
