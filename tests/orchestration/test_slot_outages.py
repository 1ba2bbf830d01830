"""Slots while the Prefect server goes away and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from headgate.admission.bank import BankRules, Outage
from headgate.orchestration import PrivateServer, private_server
from tests.orchestration.slot_site import Site, busy, limit_now, set_limit, unique_host, until

pytestmark = [pytest.mark.slow, pytest.mark.long]


class Servers:
    """A Prefect server that is stopped and started again, on the same port and folder, with its leases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = AsyncExitStack()
        self._port = 0

    async def start(self) -> PrivateServer:
        server = await self._running.enter_async_context(
            private_server(self._folder, port=self._port, keep_leases=True)
        )
        self._port = int(server.url.rsplit(":", 1)[1])
        return server

    async def stop(self) -> None:
        await self._running.aclose()


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[Servers]:
    running = Servers(folder)
    try:
        yield running
    finally:
        await running.stop()


async def test_slots_outlive_a_server_that_is_stopped_and_started(tmp_path: Path) -> None:
    holding = Site(unique_host(), 8, speed=1.0)
    stopping = Site(unique_host(), 8, bank=BankRules(outage=Outage.STOP), speed=4.0)
    name = holding.rule.name
    async with servers(tmp_path) as server:
        with (await server.start()).as_client():
            await set_limit(name, 8)
            await set_limit(stopping.rule.name, 8)
            async with holding.open(), busy(holding), stopping.open(), busy(stopping):
                await until(lambda: holding.in_flight == 8 and stopping.in_flight == 8)
                await server.stop()
                # The policy `stop` gives way at the first call that fails, `hold` goes on with what it has.
                await until(lambda: "SlotServiceAway" in stopping.kinds() and stopping.in_flight == 0)
                done = holding.done
                await until(lambda: holding.done > done + 100)
                await server.start()
                await until(lambda: "SlotServiceBack" in stopping.kinds() and stopping.in_flight > 0, within_s=100)
                seen = await limit_now(name)
                assert seen is not None
                assert seen.active_slots == 8
                assert holding.in_flight == 8
                assert "SlotsLost" not in holding.kinds()
            left = await limit_now(name)
            assert left is not None
            assert left.active_slots == 0
