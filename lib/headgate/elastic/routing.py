"""Which worker a request goes to: the least loaded by tokens, unless one with its beginning is hardly more loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headgate.elastic.affinity import Affinity
from headgate.elastic.request import ElasticRequest
from headgate.elastic.worker import Worker

_EXTRA_SHARE: Final = 4
"""A worker with a request's prefix may have this part of its slots more in use than the least loaded one: recomputing
a prefix costs a fraction of a request, standing in an engine's queue a whole one."""


def choose(workers: Iterable[Worker], request: ElasticRequest, affinity: Affinity) -> Worker | None:
    """Return the one of some workers with room that a request goes to; None when none has memory for it."""
    open_ = [worker for worker in workers if _has_tokens(worker, request.tokens)]
    if not open_:
        return None
    least = min(open_, key=_load)
    if not request.prefixes:
        return least
    worker_id = affinity.worker_of(request.prefixes)
    akin = next((worker for worker in open_ if worker.worker_id == worker_id), None)
    if akin is None or len(akin.requests) > len(least.requests) + max(1, akin.slots // _EXTRA_SHARE):
        return least
    return akin


def _load(worker: Worker) -> tuple[float, int, int]:
    return worker.tokens / worker.slots, len(worker.requests), worker.number


def _has_tokens(worker: Worker, tokens: int) -> bool:
    """Return whether the engine has memory for a request; one that has nothing to do takes any."""
    if worker.load is None or worker.load.token_slots is None or not worker.requests:
        return True
    return worker.tokens + tokens <= worker.load.token_slots
