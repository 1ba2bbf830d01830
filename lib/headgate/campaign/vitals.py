"""The health of a campaign at one moment, small enough to be told every few seconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headgate.core.events import HealthReported, RequestKeyHealth
from headgate.core.status import RequestStatus
from headgate.scheduling import Dispatcher

TOP_GROUPS: Final = 20
TOP_KEYS: Final = 50
"""Groups and request keys that a report names; the others are counted. So a report stays below some kilobytes."""


def health_report(
    dispatcher: Dispatcher,
    models: Iterable[str],
    *,
    campaign: str,
    run_id: str,
    state: str,
    workers: tuple[int, int],
    buffered: int,
    open_tasks: int,
    spooled: int,
    requests: Sequence[RequestStatus],
    now: float,
    frontier_target: int | None = None,
) -> HealthReported:
    """Return what a campaign looks like now, from counts that its parts keep: O(models), whatever the queue's length.

    Args:
        dispatcher: of the campaign.
        models: the keys of its models.
        campaign: its name.
        run_id: which run of it.
        state: `starting`, `running`, `draining` or `stopped`.
        workers: how many there are, and how many are busy.
        buffered: tasks that wait before the ready queue.
        open_tasks: all tasks that have begun their way and not ended it.
        spooled: samples that are not stored yet.
        requests: the request keys.
        now: the campaign's time.
        frontier_target: samples that are to be open at once, where they are opened adaptively.
    """
    queued = {model: lane.queued for model, lane in dispatcher.lanes.items() if lane.queued}
    in_flight = {model: count for model in models if (count := dispatcher.in_flight(model))}
    named = _largest(queued), _largest(in_flight)
    keys = heapq.nlargest(TOP_KEYS, requests, key=lambda r: (r.waiters, r.pressure is not None, r.in_flight))
    return HealthReported(
        campaign=campaign,
        run_id=run_id,
        state=state,
        workers=workers[0],
        active=workers[1],
        queued=len(dispatcher.queue),
        buffered=buffered,
        open_tasks=open_tasks,
        spooled=spooled,
        leases=len(dispatcher.book.live),
        passed_over=dispatcher.pressure.pass_overs,
        frontier_target=frontier_target,
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
