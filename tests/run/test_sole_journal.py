"""The lease of a running campaign on its store, and the lock of its ranking."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.config import load_settings
from headgate.core.errors import InvalidInputError
from headgate.core.status import CampaignStatus
from headgate.run import assembly, models_at_hand, run_campaign


async def test_a_lease_is_given_back_after_a_renewal_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "LEASE_S", 0.0)
    is_renewing, done = threading.Event(), threading.Event()
    written: list[str] = []

    class Slow:
        async def renew(self, *_: object, is_new: bool = False) -> None:
            await asyncio.to_thread(self._write, is_new)

        async def give_back(self, key: str) -> None:
            written.append("given back")

        @staticmethod
        def _write(is_new: bool) -> None:
            if not is_new:
                is_renewing.set()
                done.wait(timeout=30)
            written.append("renewed")

    journal = SimpleNamespace(lease=lambda: ("leases/a", "here"))
    campaign = SimpleNamespace(journal=SimpleNamespace(journal=journal), plan=SimpleNamespace(environments=("x",)))
    async with assembly._sole_journal(campaign, Slow()):  # type: ignore[arg-type]
        await asyncio.to_thread(is_renewing.wait, 30)
        asyncio.get_running_loop().call_later(0.05, done.set)
    async with asyncio.timeout(30):
        while len(written) < 3:  # noqa: ASYNC110 - a thread writes
            await asyncio.sleep(0.01)
    assert written[:1] == ["renewed"]
    assert written[-1] == "given back"


async def test_two_runs_do_not_rank_one_campaign(tmp_path: Path) -> None:
    """Each would know the rows of which it took every cell: few of them, so that both take nearly all tasks."""
    ranks = {"instances": 3, "indifference": 0.05, "environments": ("affine:sat-hard",), "roster": "baselines"}
    places = {"store": str(tmp_path / "store"), "journal": str(tmp_path / "journal"), "campaign": "ranked"}
    settings = load_settings(ranks | places, environ={}).settings
    refused: list[str] = []
    async with models_at_hand(settings) as roster:

        async def on_status(_: CampaignStatus) -> None:
            if not refused:
                with pytest.raises(InvalidInputError, match="ranked are already being ranked, by process") as error:
                    await run_campaign(settings, roster=roster)
                refused.append(error.value.next_step)

        first = await run_campaign(settings, roster=roster, on_status=on_status, every_s=0.01)
        assert "--campaign" in refused[0]
        assert (first.samples, (await run_campaign(settings, roster=roster)).samples) == (9, 0)
