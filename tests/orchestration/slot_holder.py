"""A process that takes slots and keeps them busy until it is killed: `python -m … HOST SLOTS`."""

from __future__ import annotations

import asyncio
import sys

from tests.orchestration.slot_site import Site, busy, until


async def hold(host: str, slots: int) -> None:
    site = Site(host, slots, speed=1.0)
    async with site.open(), busy(site, workers=slots, hold_s=3_600):
        await until(lambda: site.in_flight == slots, within_s=60)
        sys.stdout.write("held\n")
        sys.stdout.flush()
        await asyncio.sleep(3_600)


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], int(sys.argv[2])))
