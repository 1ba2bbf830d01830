"""What a driver is told when there can be no ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

from headgate.core.errors import JournalError
from headgate.placement.cluster.actor import LEDGER_NAME, LedgerActor
from headgate.placement.cluster.client import connect
from headgate.placement.service.journal import Journal


def test_a_journal_that_cannot_be_written_is_told_and_leaves_no_ledger(ray_cluster: object) -> None:
    with pytest.raises(JournalError, match="could not be opened"):
        connect(journal="/proc/nowhere/journal.sqlite")
    with pytest.raises(ValueError, match=LEDGER_NAME):
        ray.get_actor(LEDGER_NAME, namespace="headgate")


@pytest.mark.parametrize(("is_held", "tries"), [(False, 1), (True, 3)])
async def test_a_journal_is_tried_again_only_while_another_process_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool, tries: int
) -> None:
    path = tmp_path / "journal.sqlite" if is_held else Path("/proc/nowhere/journal.sqlite")
    tried, opened, actor = 0, Journal.open, object.__new__(LedgerActor)
    actor._path = path
    holder = Journal(path).open() if is_held else None

    def counted(journal: Journal) -> Journal:
        nonlocal tried
        tried += 1
        if holder is not None and tried == 3:
            holder.close()
        return opened(journal)

    monkeypatch.setattr(Journal, "open", counted)
    if is_held:
        (await actor._opened_journal()).close()
    else:
        with pytest.raises(JournalError):
            await actor._opened_journal()
    assert tried == tries
