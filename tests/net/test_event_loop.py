"""The event loop of a process that serves or samples."""

from __future__ import annotations

import asyncio
import signal

import pytest

from headgate.net import event_loop


class Result:
    """May be too large to make a text of it; counts how often that is done."""

    texts = 0

    def __repr__(self):
        self.texts += 1
        return "a result"


def test_what_is_run_gives_its_result_without_a_text_of_it():
    result = Result()

    async def main():
        return result

    assert event_loop.run(main()) is result
    assert not result.texts


def test_what_is_run_raises_its_error_and_an_interrupt():
    async def fails():
        raise ValueError("no")

    async def interrupted():
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)  # ended by the interrupt

    with pytest.raises(ValueError, match="no"):
        event_loop.run(fails())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever ran before in this process
    try:
        with pytest.raises(KeyboardInterrupt):
            event_loop.run(interrupted())
    finally:
        signal.signal(signal.SIGINT, before)
