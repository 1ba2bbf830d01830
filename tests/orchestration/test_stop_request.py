"""Signals become stop requests, and nothing of that is left afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from types import SimpleNamespace

import pytest
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Running

from headgate.orchestration import run_state
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


async def test_a_run_that_is_done_waits_for_an_api_that_is_away_and_for_none_once_a_signal_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, stop = 0, StopRequest()

    async def current_state() -> State | None:
        nonlocal looks
        looks += 1
        return Running() if looks == 3 else None

    monkeypatch.setattr(run_state, "current_state", current_state)
    monkeypatch.setattr(run_state, "_HEED_EVERY_S", 0.0)
    monkeypatch.setattr(run_state, "run_logger", logging.getLogger)
    monkeypatch.setattr(run_state.FlowRunContext, "get", lambda: SimpleNamespace(flow_run=object()))
    assert (await run_state.ended(stop, "done", {})).is_completed()
    assert looks == 3
    looks = 10
    stop.ask("SIGTERM was received", signal.SIGTERM)
    with pytest.raises(TerminationSignal):
        await run_state.ended(stop, "drained", {})
    assert looks == 11
