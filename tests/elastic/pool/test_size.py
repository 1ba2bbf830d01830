"""Size: what a request costs does not grow with the workers that have no room, nor with the line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import Worker
from tests.elastic.hands import Hands, Wanted


def looks_of_one_request(workers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a worker is asked for room while one request ends and the next one of a line is sent."""
    names = [f"w{number}" for number in range(workers)]
    config = ElasticConfig(max_workers=workers, monitoring_interval=1000, urgent_interval=1000)
    there = Hands(config, dict.fromkeys(names, 1), Wanted(workers), awake=tuple(names))
    for number in range(workers + 20):
        there.submit(f"r{number}")
    looks = 0
    has_room: Callable[[Worker], bool] = Worker.has_room.fget  # type: ignore[attr-defined]

    def counted(worker: Worker) -> bool:
        nonlocal looks
        looks += 1
        return has_room(worker)

    send = there.sent[3]
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "has_room", property(counted))
        there.pool.ended(send.request_id, send.epoch, there.now)
        assert len(there.pool.decide(there.now)) == 1
    there.pool.validate()
    return looks


def test_a_full_pool_of_hundreds_costs_a_request_no_more_than_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks_of_one_request(200, monkeypatch) == looks_of_one_request(4, monkeypatch)
