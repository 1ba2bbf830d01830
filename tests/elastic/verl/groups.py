"""Worker groups as users of the seed write them, copied from its document as far as that is code."""

from __future__ import annotations

import asyncio
import threading
from typing import Any


class SeedGroup:
    """A worker group written for the seed: it knows nothing of Headgate, and of memory only how it is resumed."""

    def __init__(self, world_size: int = 4) -> None:
        self.world_size = world_size
        self.running = dict.fromkeys(range(world_size), 0)
        self.readings = 0
        self.log: list[str] = []
        self.fails: dict[str, int] = {}

    async def get_worker_status(self) -> dict[int, dict[str, Any]]:
        await asyncio.sleep(0)
        self.readings += 1
        self._perhaps_fail("get_worker_status")
        return {
            worker_id: {"active_requests": count, "total_processed": 0, "status": "active"}
            for worker_id, count in self.running.items()
        }

    async def flush_worker_cache(self, worker_id: int) -> None:
        assert self.running[worker_id] == 0, "flushing a busy engine loses its requests"
        self._perhaps_fail("flush_worker_cache")
        self.log.append(f"flush {worker_id}")

    async def resume_worker_memory(self, worker_id: int) -> None:
        await asyncio.sleep(0.5)
        self._perhaps_fail("resume_worker_memory")
        self.log.append(f"resume {worker_id}")

    def _perhaps_fail(self, what: str) -> None:
        if self.fails.get(what, 0) > 0:
            self.fails[what] -= 1
            raise RuntimeError(f"{what} was told to fail")


class ReleasingGroup(SeedGroup):
    """A group that can release memory, too."""

    async def release_worker_memory(self, worker_id: int) -> None:
        self.log.append(f"release {worker_id}")


class PlainGroup:
    """A group with plain methods, which answers from whatever thread it is asked in."""

    def __init__(self) -> None:
        self.world_size = 2
        self.flushed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def get_worker_status(self) -> dict[str, dict[str, int]]:
        return {"0": {"active_requests": 0}}

    def flush_worker_cache(self, worker_id: int) -> None:
        self._loop.call_soon_threadsafe(self.flushed.set)


class HangingGroup:
    """A group with a plain method that does not return before it is let go."""

    def __init__(self) -> None:
        self.world_size = 4
        self.readings = 0
        self.may_return = threading.Event()

    def get_worker_status(self) -> dict[str, dict[str, int]]:
        self.readings += 1
        self.may_return.wait()
        return {}


class BareGroup:
    """A group that has nothing but a size."""

    world_size = 3
