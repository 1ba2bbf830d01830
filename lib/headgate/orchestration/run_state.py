"""The flow run of this process: its state according to the API, how it ends, and its log."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import MissingContextError, Pause, PrefectException, TerminationSignal
from prefect.logging import get_logger, get_run_logger
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.states import Cancelled, Completed

from headgate.core import require_agreement
from headgate.core.tasks import beside
from headgate.orchestration.slots.service import server_time
from headgate.orchestration.stop_request import StopRequest

_HEED_EVERY_S: Final = 1.0
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def artifact_key(*parts: str) -> str:
    """Return the artifact key for the parts, e.g. `scores-affine-sat`.

    Raises:
        ValueError: if they contain no letter or digit.
    """
    key = "-".join(filter(None, (_OTHER.sub("-", part.lower()).strip("-") for part in parts)))
    if not key:
        raise ValueError(f"an artifact key needs a letter or a digit (got {parts!r})")
    return key


API_ERRORS: Final = (httpx.HTTPError, PrefectException, OSError, TimeoutError, ValueError)
"""The errors that calls of Prefect's API raise when the server is away, busy, or refuses."""

_READ_TIMEOUT_S: Final = 10.0

_AWAY_S: Final = 600.0
"""How long a finished run waits for an API that is away."""


def run_logger() -> logging.Logger | logging.LoggerAdapter[Any]:
    """Return the logger of the current flow run, or one of this process if there is none."""
    try:
        return get_run_logger()
    except MissingContextError:
        return get_logger("headgate_runs")


def tell_problems(problems: Iterable[object]) -> None:
    """Log what a scan of the store left out."""
    for problem in problems:
        run_logger().warning("left out of the store: %s", problem)


async def require_server_clock() -> None:
    """Return if the API's clock agrees with this machine's; an API that does not answer is not checked.

    Raises:
        ClockDisagreesError: if the clocks differ.
    """
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S), get_client() as client:
            answer = await client.hello()
    except API_ERRORS:
        return
    require_agreement(time.time(), server_time(answer).timestamp(), "the Prefect API")


async def current_state() -> State | None:
    """Return the current flow run's state according to the API; None without a run or an answer."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return None
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S), get_client() as client:
            return (await client.read_flow_run(context.flow_run.id)).state
    except API_ERRORS:
        # The caller decides what an unknown state means; whatever publishes to the API reports that it is away.
        return None


async def _answered_state(stop: StopRequest) -> State | None:
    """Return the current flow run's state as soon as the API answers; None after a signal or `_AWAY_S`.

    Prefect's client retries reporting a state for only a minute or two; the finished work would then show as Failed.
    """
    context = FlowRunContext.get()
    has_run = context is not None and context.flow_run is not None
    until, is_told = time.monotonic() + _AWAY_S, False
    while (state := await current_state()) is None and has_run and stop.signal is None and time.monotonic() < until:
        if not is_told:
            is_told = True
            run_logger().warning("The work is done, but the Prefect API does not answer: waiting up to %g s", _AWAY_S)
        await asyncio.sleep(_HEED_EVERY_S)
    return state


async def heed_state(stop: StopRequest) -> None:
    """Request a stop if the API says that the run was cancelled, paused, or ended by someone else."""
    state = await current_state()
    if state is not None and not (state.is_running() or state.is_pending() or state.is_scheduled()):
        stop.ask(f"the flow run was set to {state.name}")


@asynccontextmanager
async def heeding(stop: StopRequest) -> AsyncIterator[None]:
    """Run `heed_state` every second while the context lasts."""

    async def heed() -> None:
        while True:
            await asyncio.sleep(_HEED_EVERY_S)
            await heed_state(stop)

    async with beside(heed()):
        yield


async def ended(stop: StopRequest, message: str, data: Mapping[str, Any]) -> State[Any]:
    """Return the final state of a run that has drained, or raise what Prefect turns into it.

    A run that was not stopped is Completed, a cancelled one Cancelled. A paused one stays paused, and runs again when
    it is resumed. A run ended by a signal is Crashed, like any run that loses its machine: a new attempt continues
    from there.
    """
    is_whole = stop.reason is None
    state = await _answered_state(stop)
    if is_whole:
        return Completed(message=message, data=dict(data))
    if state is not None and (state.is_cancelling() or state.is_cancelled()):
        return Cancelled(message=f"Cancelled and drained: {message}")
    if state is not None and state.is_paused():
        raise Pause(state=state)
    run_logger().warning("Drained because %s: %s", stop.reason, message)
    raise KeyboardInterrupt if stop.signal is signal.SIGINT else TerminationSignal(signal=signal.SIGTERM)


def sole_error(error: Exception) -> Exception:
    """Return the error inside groups that hold one each, so that the flow run's state names the error itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error


class _ToRun(logging.Handler):
    """Forwards records from any thread to a run's logger, which sends them to the API with the run's id."""

    def __init__(self, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record's message."""
        self._logger.log(record.levelno, "%s", record.getMessage(), exc_info=record.exc_info)


def _outlive_readers() -> None:
    """Survive the end of the process that reads this one's output, such as a worker: the next line would end it."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for handler in (handler for one in loggers for handler in getattr(one, "handlers", ())):
        if isinstance(handler, PrefectConsoleHandler):
            handler.console.on_broken_pipe = partial(setattr, handler.console, "quiet", True)  # type: ignore[method-assign]


@contextmanager
def library_logs_in_run() -> Iterator[None]:
    """Send the library's log to the current flow run while the context lasts, and survive the loss of its readers."""
    _outlive_readers()
    logger = logging.getLogger("headgate")
    level, propagates = logger.level, logger.propagate
    handler = _ToRun(run_logger())
    logger.addHandler(handler)
    logger.propagate = False  # the run's logger writes to the console as well
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
        logger.setLevel(level)
