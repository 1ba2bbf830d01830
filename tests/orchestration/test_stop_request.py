"""Signals become stop requests, and nothing of that is left afterwards."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from headgate.orchestration.stop_request import StopRequest, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_to_stop_and_interrupts_nothing(number: signal.Signals) -> None:
    stop = StopRequest()
    with stop_on_signals(stop):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            await stop.event.wait()
    assert stop.signal is number
    assert stop.reason == f"{number.name} was received"


async def test_what_asked_first_stays_the_reason() -> None:
    stop = StopRequest()
    stop.ask("first")
    stop.ask("second", signal.SIGTERM)
    assert (stop.reason, stop.signal) == ("first", None)


async def test_the_handlers_before_are_there_again_afterwards() -> None:
    def own(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGTERM, own)
    try:
        with stop_on_signals(StopRequest()):
            assert signal.getsignal(signal.SIGTERM) is not own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_second_sigterm_changes_nothing_and_a_second_ctrl_c_gives_up() -> None:
    stop = StopRequest()
    with stop_on_signals(stop):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)
        task = asyncio.current_task()
        assert task
        assert task.cancelling() == 0
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(10)
        task.uncancel()


async def test_outside_the_main_thread_nothing_is_changed() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def inside() -> None:
        with stop_on_signals(StopRequest()):
            assert signal.getsignal(signal.SIGTERM) is before

    await asyncio.to_thread(lambda: asyncio.run(inside()))
