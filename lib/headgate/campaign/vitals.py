"""The health of a campaign at one moment, small enough to be told every few seconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headgate.campaign.parts import Parts
from headgate.core.events import HealthReported, RequestKeyHealth
from headgate.core.status import RequestStatus, WorkerStatus

TOP_GROUPS: Final = 20
TOP_KEYS: Final = 50
"""Groups and request keys that a report names; the others are counted. So a report stays below some kilobytes."""


def health_report(
    parts: Parts,
    *,
    run_id: str,
    state: str,
    workers: WorkerStatus,
    spooled: int,
    requests: Sequence[RequestStatus],
    passed_over: int,
    now: float,
) -> HealthReported:
    """Return what a campaign looks like now, from counts that its parts keep: O(models), whatever the queue's length.

    Args:
        parts: of the campaign.
        run_id: which run of it.
        state: `starting`, `running`, `draining` or `stopped`.
        workers: the figures of the workers.
        spooled: samples that are not stored yet.
        requests: the request keys.
        passed_over: tasks passed over so far because their model admitted no request.
        now: the campaign's time.
    """
    dispatcher = parts.dispatcher
    queued = {group: tasks for group, tasks in dispatcher.queue.by_model.items() if tasks}
    in_flight = {model: count for model in parts.samplers if (count := dispatcher.in_flight(model))}
    named = _largest(queued), _largest(in_flight)
    keys = heapq.nlargest(TOP_KEYS, requests, key=lambda r: (r.waiters, r.pressure is not None, r.in_flight))
    return HealthReported(
        campaign=parts.settings.campaign,
        run_id=run_id,
        state=state,
        workers=workers.total,
        active=workers.active,
        queued=len(dispatcher.queue),
        buffered=parts.batches.size,
        open_tasks=len(dispatcher.queue) + parts.batches.size + dispatcher.in_flight(),
        spooled=spooled,
        leases=len(dispatcher.book.live),
        passed_over=passed_over,
        frontier_target=None,
        queued_by_group=named[0],
        in_flight_by_group=named[1],
        groups_left_out=len(queued) + len(in_flight) - len(named[0]) - len(named[1]),
        resources={
            name: (dispatcher.book.in_use.get(name, 0), limit) for name, limit in dispatcher.book.limits.items()
        },
        requests=tuple(_key_health(key, now) for key in keys),
        requests_left_out=len(requests) - len(keys),
    )


def _largest(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(heapq.nlargest(TOP_GROUPS, counts.items(), key=lambda pair: pair[1]))


def _key_health(key: RequestStatus, now: float) -> RequestKeyHealth:
    return RequestKeyHealth(
        key=" ".join(_words(key)),
        limit=key.limit,
        in_flight=key.in_flight,
        waiters=key.waiters,
        closed_by=key.pressure,
        closed_until=now + key.cooldown_s if key.cooldown_s else None,
    )


def _words(key: RequestStatus) -> Iterable[str]:
    return (key.provider, key.model) if key.domain == "chat" else (key.provider, key.model, key.domain)
