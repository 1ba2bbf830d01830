"""What a driver is told when there can be no ledger."""

from __future__ import annotations

import pytest
import ray

from headgate.core.errors import JournalError
from headgate.placement.cluster.actor import LEDGER_NAME
from headgate.placement.cluster.client import connect


def test_a_journal_that_cannot_be_written_is_told_and_leaves_no_ledger(ray_cluster: object) -> None:
    with pytest.raises(JournalError, match="could not be opened"):
        connect(journal="/proc/nowhere/journal.sqlite")
    with pytest.raises(ValueError, match=LEDGER_NAME):
        ray.get_actor(LEDGER_NAME, namespace="headgate")
