"""What clients see: one answer each, whatever happens to engines behind the pool."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from headgate.core import events
from headgate.elastic.errors import (
    EngineError,
    InvalidElasticError,
    PoolClosedError,
    PoolFullError,
    RequestLostError,
)
from headgate.elastic.service.in_flight import MOST_HELD_BYTES
from headgate.elastic.worker import WorkerState
from tests.elastic.service.desk import opened, outgoing, virtual, whole
from tests.elastic.service.in_memory import STREAM, FakeEngine


def test_requests_are_spread_over_workers_and_answered() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0"), FakeEngine("w1")) as desk:
            answers = await asyncio.gather(*(desk.ask(f"r{number}") for number in range(8)))
            assert answers == [b"abc"] * 8
            assert len(desk.engines[0].finished) == len(desk.engines[1].finished) == 4
            counts = desk.service.status().counts
            assert (counts.arrived, counts.served, counts.lost, counts.withdrawn) == (8, 8, 0, 0)

    virtual(main)


def test_an_answer_with_a_status_of_the_client_is_an_answer() -> None:
    async def main() -> None:
        async with (
            opened(FakeEngine("w0", status=400)) as desk,
            desk.service.request(outgoing("r")) as answer,
        ):
            assert (answer.status, await whole(answer)) == (400, b"abc")
            assert desk.service.status().counts.handed_over == 0

    virtual(main)


def test_an_answer_that_is_not_whole_is_handed_over_unseen_when_its_engine_dies() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", service_s=3), FakeEngine("w1", service_s=3)) as desk:
            asked = [asyncio.create_task(desk.ask(f"r{number}")) for number in range(4)]
            await asyncio.sleep(2)
            desk.engines[0].die()
            assert await asyncio.gather(*asked) == [b"abc"] * 4
            assert sorted(desk.engines[0].finished + desk.engines[1].finished) == ["r0", "r1", "r2", "r3"]
            assert desk.service.status().counts.handed_over == 2
            await desk.reaches(0, WorkerState.FAILED)

    virtual(main)


def test_a_stream_passes_on_what_arrives_as_it_arrives() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with (
            opened(FakeEngine("w0", content_type=STREAM)) as desk,
            desk.service.request(outgoing("r")) as answer,
        ):
            seen = [(chunk, round(loop.time())) async for chunk in answer.chunks]
            assert seen == [(b"a", 1), (b"b", 2), (b"c", 3)]

    virtual(main)


def test_a_stream_that_breaks_before_its_first_part_is_handed_over() -> None:
    async def main() -> None:
        engines = [FakeEngine(name, content_type=STREAM, service_s=3) for name in ("w0", "w1")]
        async with opened(*engines) as desk:
            asked = asyncio.create_task(desk.ask("r"))
            await asyncio.sleep(1)
            engines[0].die()
            assert await asked == b"abc"
            assert engines[1].finished == ["r"]

    virtual(main)


def test_a_stream_that_breaks_after_its_first_part_fails_in_the_hands_of_its_reader() -> None:
    async def main() -> None:
        engines = [FakeEngine(name, content_type=STREAM) for name in ("w0", "w1")]
        async with opened(*engines) as desk, desk.service.request(outgoing("r")) as answer:
            chunks = aiter(answer.chunks)
            assert await anext(chunks) == b"a"
            engines[0].die()
            with pytest.raises(RequestLostError, match="after a part of the answer had been sent"):
                await anext(chunks)
            assert engines[1].finished == []
            assert desk.service.status().counts.lost == 1

    virtual(main)


def test_a_502_storm_ends_with_every_request_answered_once() -> None:
    async def main() -> None:
        engines = [FakeEngine(name, slots=4) for name in ("w0", "w1", "w2")]
        async with opened(*engines, max_losses=10) as desk:
            for engine in engines[:2]:
                engine.faults["answer"] = [EngineError("502 Bad Gateway") for _ in range(4)]
            answers = await asyncio.gather(*(desk.ask(f"r{number}") for number in range(30)))
            assert answers == [b"abc"] * 30
            finished = [each for engine in engines for each in engine.finished]
            assert sorted(finished) == sorted(f"r{number}" for number in range(30))

    virtual(main)


def test_a_request_that_breaks_every_engine_is_lost_and_says_why() -> None:
    async def main() -> None:
        engines = [FakeEngine("w0"), FakeEngine("w1")]
        async with opened(*engines, max_losses=2) as desk:
            for engine in engines:
                engine.faults["answer"] = [EngineError("reset by peer")]
            with pytest.raises(RequestLostError, match="2 workers failed with it, the last: reset by peer"):
                await desk.ask("r")

    virtual(main)


def test_an_engine_that_hangs_with_a_request_loses_it_to_another_one() -> None:
    async def main() -> None:
        engines = [FakeEngine("w0"), FakeEngine("w1")]
        async with opened(*engines, request_timeout=5.0) as desk:
            engines[0].hangs.add("answer")
            asked = asyncio.create_task(desk.ask("r"))
            assert await asked == b"abc"
            assert asyncio.get_running_loop().time() == pytest.approx(6, abs=0.1)
            (handed_over,) = desk.told(events.RequestHandedOver)
            assert "request_timeout 5 s" in str(handed_over)

    virtual(main)


def test_cancelling_a_request_that_waits_takes_it_out_of_line() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1)) as desk:
            first, second = asyncio.create_task(desk.ask("a")), asyncio.create_task(desk.ask("b"))
            await asyncio.sleep(0.5)
            assert desk.service.status().waiting == 1
            second.cancel()
            with suppress(asyncio.CancelledError):
                await second
            assert desk.service.status().waiting == 0
            assert await first == b"abc"
            assert desk.engines[0].finished == ["a"]
            assert desk.service.status().counts.withdrawn == 1

    virtual(main)


def test_cancelling_a_request_that_runs_ends_it_in_its_engine() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1)) as desk:
            asked = asyncio.create_task(desk.ask("a"))
            await asyncio.sleep(0.5)
            assert desk.engines[0].running == 1
            asked.cancel()
            await asyncio.wait([asked])
            await asyncio.sleep(0.01)
            assert desk.engines[0].running == 0
            assert await desk.ask("b") == b"abc"

    virtual(main)


@pytest.mark.parametrize("steps", range(40))
def test_cancelling_a_stream_at_any_point_leaks_nothing(steps: int) -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1, content_type=STREAM, service_s=0.001)) as desk:
            asked = asyncio.create_task(desk.ask("a"))
            for _ in range(steps):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait([asked])
            await asyncio.sleep(0.1)
            status = desk.service.status()
            assert (status.running, status.waiting, desk.engines[0].running) == (0, 0, 0)
            assert await desk.ask("b") == b"abc"

    virtual(main)


def test_leaving_a_stream_early_ends_it_in_its_engine() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", content_type=STREAM)) as desk:
            async with desk.service.request(outgoing("r")) as answer:
                assert await anext(aiter(answer.chunks)) == b"a"
            await asyncio.sleep(0.01)
            assert desk.engines[0].running == 0
            assert desk.service.status().counts.withdrawn == 1

    virtual(main)


def test_a_client_that_does_not_read_is_no_fault_of_the_worker() -> None:
    async def main() -> None:
        engine = FakeEngine("w0", slots=8, content_type=STREAM, chunks=(b"x" * 200_000,) * 6, service_s=0.1)
        async with opened(engine, requests_per_worker_capacity=8, request_timeout=5.0) as desk:

            async def stall(request_id: str) -> None:
                async with desk.service.request(outgoing(request_id)) as answer:
                    await asyncio.sleep(20)
                    with pytest.raises(RequestLostError, match="its client did not read the answer"):
                        await whole(answer)

            await asyncio.gather(*(stall(f"r{number}") for number in range(6)))
            worker = desk.service.status().workers[0]
            assert worker.state is WorkerState.ACTIVE
            assert not worker.last_error
            assert not engine.running

    virtual(main)


def test_a_slow_reader_makes_its_engine_wait_and_nobody_else() -> None:
    async def main() -> None:
        chunk = b"x" * 100_000
        engine = FakeEngine("w0", content_type=STREAM, chunks=(chunk,) * 20, service_s=0.01)
        async with opened(engine) as desk, desk.service.request(outgoing("slow")) as answer:
            await asyncio.sleep(5)
            assert engine.finished == []
            assert await desk.ask("quick") == chunk * 20
            assert await whole(answer) == chunk * 20

    virtual(main)


def test_an_answer_too_long_to_be_held_back_is_passed_on_in_parts() -> None:
    async def main() -> None:
        part = bytes(MOST_HELD_BYTES // 2 + 1)
        engine = FakeEngine("w0", chunks=(part,) * 3)

        async def in_parts(request: object) -> object:
            for chunk in engine.chunks:
                await asyncio.sleep(1)
                yield chunk

        engine._whole = in_parts  # type: ignore[method-assign,assignment]
        async with opened(engine) as desk, desk.service.request(outgoing("r")) as answer:
            assert asyncio.get_running_loop().time() == pytest.approx(2, abs=0.1)
            assert len(await whole(answer)) == 3 * len(part)

    virtual(main)


def test_more_than_max_queue_are_refused_with_the_time_to_come_again() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1), max_queue=1) as desk:
            asked = [asyncio.create_task(desk.ask(name)) for name in ("a", "b")]
            await asyncio.sleep(0.1)
            with pytest.raises(PoolFullError, match="max_queue allows 1") as caught:
                await desk.ask("c")
            assert caught.value.retry_after_s is not None
            assert caught.value.retry_after_s > 0
            assert desk.service.status().counts.refused == 1
            assert await asyncio.gather(*asked) == [b"abc"] * 2

    virtual(main)


def test_a_request_that_waits_too_long_is_told_so() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1, service_s=30), queue_timeout=3.0) as desk:
            first = asyncio.create_task(desk.ask("a"))
            await asyncio.sleep(1)
            with pytest.raises(PoolFullError, match="queue_timeout allows 3 s"):
                await desk.ask("b")
            assert await first == b"abc"

    virtual(main)


def test_a_request_that_no_worker_is_awake_for_is_told_what_failed() -> None:
    async def main() -> None:
        engine = FakeEngine("w0")
        async with opened(engine, queue_timeout=30.0, failed_retry=1000) as desk:
            engine.is_dead = True
            await asyncio.sleep(60)
            with pytest.raises(PoolFullError, match="no worker is awake: w0 has failed: it did not answer 3 readings"):
                await desk.ask("a")

    virtual(main)


def test_an_id_that_is_under_way_is_refused() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0")) as desk:
            first = asyncio.create_task(desk.ask("a"))
            await asyncio.sleep(0.1)
            with pytest.raises(InvalidElasticError, match="request_id must be unique"):
                await desk.ask("a")
            assert await first == b"abc"
            assert await desk.ask("a") == b"abc"

    virtual(main)


def test_stopping_lets_what_runs_and_waits_end_and_takes_nothing_new() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1)) as desk:
            asked = [asyncio.create_task(desk.ask(name)) for name in ("a", "b")]
            await asyncio.sleep(0.1)
            stop = asyncio.create_task(desk.service.stop(10))
            await asyncio.sleep(0.1)
            assert not desk.service.status().is_open
            with pytest.raises(PoolClosedError):
                await desk.ask("c")
            assert await asyncio.gather(*asked) == [b"abc", b"abc"]
            await stop
            await desk.service.stop(10)

    virtual(main)


def test_what_has_not_ended_when_the_time_of_a_stop_is_over_fails() -> None:
    async def main() -> None:
        engine = FakeEngine("w0", slots=1, content_type=STREAM, service_s=2)
        async with opened(engine) as desk:
            streaming, waiting = asyncio.create_task(desk.ask("a")), asyncio.create_task(desk.ask("b"))
            await asyncio.sleep(3)
            await desk.service.stop(1)
            for asked in (streaming, waiting):
                with pytest.raises(PoolClosedError, match="chat has been stopped"):
                    await asked
            assert desk.service.status().counts.lost == 2

    virtual(main)


def test_leaving_the_service_with_requests_in_flight_fails_them() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0")) as desk:
            asked = asyncio.create_task(desk.ask("a"))
            await asyncio.sleep(0.5)
        with pytest.raises(PoolClosedError):
            await asked

    virtual(main)
