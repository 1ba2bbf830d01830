"""What a service makes sure of before it takes requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.elastic import ElasticConfig
from headgate.elastic.engines.engine import EngineFacts, Outgoing
from headgate.elastic.errors import (
    EngineError,
    InvalidElasticError,
    NotAnEngineError,
    PoolClosedError,
    WorkerClaimedError,
)
from headgate.elastic.service import ElasticService, OnLost, WorkerLease
from headgate.elastic.worker import WorkerState
from tests.elastic.service.desk import opened, virtual
from tests.elastic.service.in_memory import FakeEngine, FakeLeases


class Wordless(FakeEngine):
    """An engine that does not tell how many requests it takes."""

    async def check(self) -> EngineFacts:
        return EngineFacts(self.models)


def _refused(*engines: FakeEngine, **settings: object) -> str:
    said = ""

    async def main() -> None:
        nonlocal said
        with pytest.raises((InvalidElasticError, EngineError)) as caught:
            async with opened(*engines, **settings):
                pass
        assert all(engine.is_closed for engine in engines)
        said = caught.value.message

    virtual(main)
    return said


def test_everything_that_is_wrong_with_engines_is_told_at_once() -> None:
    engines = [FakeEngine("w0"), FakeEngine("w1"), FakeEngine("w2")]
    engines[0].faults["check"] = [NotAnEngineError("w0 is a coffee machine")]
    engines[2].faults["check"] = [NotAnEngineError("w2 cannot sleep")]
    assert _refused(*engines) == "w0 is a coffee machine; w2 cannot sleep"


def test_engines_none_of_which_answers_are_rather_a_mistake_in_their_addresses() -> None:
    engines = [FakeEngine("w0"), FakeEngine("w1")]
    engines[0].die()
    engines[1].hangs.add("check")
    said = _refused(*engines)
    assert said == "w0 refuses connections; w1 did not answer within 2 s"


def test_an_engine_twice_or_no_engine_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(InvalidElasticError, match="once \\(got w0 more than once\\)"):
            async with opened(FakeEngine("w0"), FakeEngine("w0")):
                pass
        with pytest.raises(InvalidElasticError, match="at least one engine"):
            async with opened():
                pass

    virtual(main)


def test_an_engine_that_does_not_answer_is_checked_when_it_does_and_then_used() -> None:
    async def main() -> None:
        late = FakeEngine("w1")
        late.die()
        async with opened(FakeEngine("w0"), late) as desk:
            await desk.reaches(1, WorkerState.FAILED)
            late.revive()
            late.faults["check"] = [NotAnEngineError("it was started without --enable-memory-saver")]
            await desk.service.until(lambda status: "memory-saver" in status.workers[1].last_error)
            assert await desk.ask("a") == b"abc"
            await desk.reaches(1, WorkerState.ACTIVE)

    virtual(main)


def test_workers_take_what_the_settings_say_or_what_the_engine_takes_if_that_is_less() -> None:
    async def main() -> None:
        engines = FakeEngine("w0", slots=3), FakeEngine("w1", slots=100), Wordless("w2", slots=None)
        async with opened(*engines, requests_per_worker_capacity=8) as desk:
            assert [worker.slots for worker in desk.service.status().workers] == [3, 8, 8]
        async with opened(*engines[:2], requests_per_worker_capacity=None) as desk:
            assert [worker.slots for worker in desk.service.status().workers] == [3, 100]

    virtual(main)


def test_an_engine_that_does_not_tell_what_it_takes_needs_a_setting() -> None:
    said = _refused(FakeEngine("w0"), Wordless("w1"), requests_per_worker_capacity=None)
    assert said.startswith("requests_per_worker_capacity must be given: w1 does not report")


def test_the_models_of_all_engines_are_known() -> None:
    async def main() -> None:
        engines = FakeEngine("w0", models=("a", "b")), FakeEngine("w1", models=("b", "c"))
        async with opened(*engines) as desk:
            assert desk.service.status().models == ("a", "b", "c")

    virtual(main)


def test_an_awake_engine_that_gets_no_lease_is_refused() -> None:
    async def main() -> None:
        leases = FakeLeases(1)
        with pytest.raises(InvalidElasticError, match="not given within 20 s \\(got w0, w1\\)"):
            async with opened(FakeEngine("w0"), FakeEngine("w1"), leases=leases):
                pass
        assert not leases.held

    virtual(main)


def test_a_lease_that_is_refused_refuses_the_start_and_gives_the_others_back() -> None:
    class Refusing(FakeLeases):
        async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:
            if worker_id == "w1":
                raise EngineError("the ledger refuses w1")
            return await super().take(worker_id, on_lost)

    async def main() -> None:
        leases = Refusing(3)
        with pytest.raises(EngineError, match="the ledger refuses w1"):
            async with opened(*(FakeEngine(f"w{number}") for number in range(3)), leases=leases):
                pass
        assert not leases.held
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual(main)


def test_an_address_belongs_to_one_pool_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = "http://127.0.0.1:30998", "http://127.0.0.1:30999"

    async def main() -> None:
        async with opened(*map(FakeEngine, names)):
            with pytest.raises(WorkerClaimedError, match=r"30998 already belongs to pool 'chat'.*30999 already"):
                async with opened(*map(FakeEngine, names)):
                    pass
        async with opened(*map(FakeEngine, names)):
            await asyncio.sleep(0)

    virtual(main)


async def test_a_service_that_was_not_entered_says_so_whatever_is_asked_of_it() -> None:
    service = ElasticService("pool", ElasticConfig(), [FakeEngine("w0")])
    asked: list[Callable[[], object]] = [
        service.status,
        service.resume,
        lambda: service.scale(1),
        lambda: service.drain("w0"),
        lambda: service.request(Outgoing("r1", "/v1/chat/completions", b"{}", {})),
    ]
    for ask in asked:
        with pytest.raises(PoolClosedError, match="pool is not open yet"):
            ask()
    with pytest.raises(PoolClosedError, match="pool is not open yet"):
        await service.stop()
