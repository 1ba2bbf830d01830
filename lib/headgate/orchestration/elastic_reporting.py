"""The flow `elastic-report`: a load replayed under several scaling policies, and what each of them cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from blocks import PublishedReport, ReportStore
from headgate.elastic import ElasticConfig
from headgate.elastic.replay import (
    RAMP_NAME,
    USUAL,
    Comparison,
    Hardware,
    InvalidLoadError,
    Load,
    Site,
    compared,
    contender,
    named_load,
    sites_for,
)
from headgate.orchestration.elastic_report_artifacts import publish_comparisons, replay_sentence
from headgate.orchestration.inputs import report_store_for
from headgate.orchestration.run_state import ended, heed_state, run_logger
from headgate.orchestration.stopping import StopRequest, stop_on_signals
from headgate.reports import replay_page

_PAGE: Final = "report.html"
_HEED_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ElasticReportOrder:
    """What a flow run is asked to replay.

    Attributes:
        trace: `ramp`, or a file on the worker: Azure's CSV, or JSON lines as Mooncake's.
        service_times: table of how long tokens take; a trace needs one.
        model: of that table.
        hardware: of that table.
        gpus: of a worker, in that table.
        policies: names of contenders; the usual ones when empty.
        frontiers: names of contenders that are replayed over all settings of their knob, too.
        starts_s: seconds that a worker takes to start; each is a replay of its own.
        slots: requests that a worker runs at once.
        max_workers: workers that there are.
        awake: workers awake at the beginning; None for 1, for a trace as many as its first minute needs.
        copies: of a trace: so many times as many users.
        scale: of the ramp: all lengths of time by this.
        seed: of the ramp, and of copies.
        reports: name of a ReportStore block.
    """

    trace: str = RAMP_NAME
    service_times: str = ""
    model: str = Hardware().model
    hardware: str = Hardware().hardware
    gpus: int = Hardware().tensor_parallel
    policies: Sequence[str] = ()
    frontiers: Sequence[str] = ()
    starts_s: Sequence[float] = (1.0, 30.0)
    slots: int = 8
    max_workers: int = 16
    awake: int | None = None
    copies: int = 1
    scale: float = 1.0
    seed: int = 0
    reports: str = ""

    def check(self) -> None:
        """Refuse what can be seen to be wrong without reading anything.

        Raises:
            InvalidLoadError: a policy is unknown, or there is no start time.
        """
        for name in (*self.policies, *self.frontiers):
            contender(name)
        if not self.starts_s:
            raise InvalidLoadError("starts_s must name at least one start time (got none)")

    def load(self) -> Load:
        """Return the load.

        Raises:
            InvalidLoadError: there is no such trace, its table of times is missing, or one of them cannot be used.
        """
        return named_load(
            self.trace,
            Path(self.service_times) if self.service_times else None,
            hardware=Hardware(self.model, self.hardware, self.gpus),
            slots=self.slots,
            copies=self.copies,
            scale=self.scale,
            seed=self.seed,
        )

    def sites(self, load: Load) -> list[Site]:
        """Return the workers, once for each start time."""
        awake = 1 if self.trace == RAMP_NAME and self.awake is None else self.awake
        return sites_for(load, self.starts_s, workers=self.max_workers, awake=awake)


class _StoppedError(Exception):
    """The run was asked to stop between two replays."""


async def run_elastic_report(order: ElasticReportOrder) -> Any:
    """Replay a load under each policy, publish what came of it, and return the state in which the flow run ends.

    The replays use the processor in a thread of their own. A run that is stopped ends after the replay at work, and
    publishes the start times that are whole.

    Raises:
        HeadgateError: something that was given cannot be used; nothing was replayed then.
    """
    order.check()
    reports = await report_store_for(order.reports)
    load = await asyncio.to_thread(order.load)
    sites = order.sites(load)
    run_logger().info("%s: %s requests, work for %s worker-seconds", load.name, len(load.calls), round(load.work_s))
    stop = StopRequest()
    with stop_on_signals(stop):
        async with _heeded(stop):
            made = await asyncio.to_thread(_replayed, order, load, sites, stop)
        published = await _published(made, reports) if made else None
        if published is not None:
            await publish_comparisons(made, published)
        sentence = replay_sentence(made)
        run_logger().info("%s", sentence)
        return await ended(stop, sentence, _data(load, made, published))


def _replayed(order: ElasticReportOrder, load: Load, sites: Sequence[Site], stop: StopRequest) -> list[Comparison]:
    """Return a comparison for each start time; those that are whole when the run is asked to stop."""
    logger = run_logger()
    made: list[Comparison] = []
    with suppress(_StoppedError):
        for site in sites:
            made += [_compared(order, load, site, stop, logger)]
    return made


def _compared(
    order: ElasticReportOrder,
    load: Load,
    site: Site,
    stop: StopRequest,
    logger: logging.Logger | logging.LoggerAdapter[Any],
) -> Comparison:
    def tell(what: str) -> None:
        if stop.reason is not None:
            raise _StoppedError
        logger.info("%g s to start: %s", site.start_s, what)

    return compared(
        load,
        site,
        config=ElasticConfig(max_workers=order.max_workers, requests_per_worker_capacity=load.slots),
        policies=tuple(dict.fromkeys(order.policies)) or (*USUAL, "clairvoyant"),
        frontiers=tuple(dict.fromkeys(order.frontiers)),
        tell=tell,
    )


@asynccontextmanager
async def _heeded(stop: StopRequest) -> AsyncIterator[None]:
    """Ask the API now and then whether the run was cancelled."""

    async def heed() -> None:
        while True:
            await asyncio.sleep(_HEED_EVERY_S)
            await heed_state(stop)

    heeding = asyncio.create_task(heed())
    try:
        yield
    finally:
        heeding.cancel()
        await asyncio.wait([heeding])


async def _published(made: Sequence[Comparison], reports: ReportStore) -> PublishedReport:
    name = f"elastic-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}"
    page = await asyncio.to_thread(replay_page, made)
    document = orjson.dumps([each.document() for each in made], option=orjson.OPT_INDENT_2).decode()
    return await reports.write(name, {_PAGE: page, "replay.json": document})


def _data(load: Load, made: Sequence[Comparison], published: PublishedReport | None) -> dict[str, Any]:
    policies = {
        f"{each.site.start_s:g} s": {
            measures.policy: {"cost": round(measures.cost, 4), "p99_s": round(measures.p99_s, 4)}
            for measures in each.measures
        }
        for each in made
    }
    places = {"places": dict(published.places), "links": dict(published.links)} if published else {}
    return {"load": load.name, "requests": len(load.calls), "policies": policies, **places}
