"""The lease of a running campaign on its store."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from headgate.run import assembly


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
