"""How long it takes from handing work in until it runs, in a reserved group with a warm host."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.bench.placement.site import Site
from headgate.bench.placement.works import Idle
from headgate.placement.amounts import amounts

_PATIENCE_S = 60.0


def starts(site: Site, count: int, progress: Callable[[int], None]) -> list[float]:
    """Return the milliseconds of each start as its driver sees it; the first, which warms the host, is left out."""
    size = amounts(cpu=1, gpu=1)
    pool = site.placement.pool("starts", quota=size, reserved=(size,))
    took_ms = []
    for number in range(count + 1):
        began = time.perf_counter()
        work = pool.submit(Idle, resources=size, priority=9, method=None)
        work.wait_running(_PATIENCE_S)
        took_ms.append(1_000 * (time.perf_counter() - began))
        work.complete()
        work.wait(_PATIENCE_S)
        progress(number)
    site.placement.close_pool("starts")
    return took_ms[1:]
