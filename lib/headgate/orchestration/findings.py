"""A flow run that computes step by step in a thread, and publishes the results of the completed steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headgate.orchestration.artifacts import Rows, publish, publish_link
from headgate.orchestration.inputs import report_store_for
from headgate.orchestration.pages import figures_markdown, places_of, way_to_page, write_report
from headgate.orchestration.run_state import artifact_key, ended, heeding, run_logger
from headgate.orchestration.stop_request import StopRequest, stop_on_signals

Step = TypeVar("Step")
Tell = Callable[[str], None]

_PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a computation, as its flow run publishes them.

    Attributes:
        kind: the prefix of the names of the report and its artifacts, e.g. `elastic`.
        sentence: the result in one sentence.
        data: what the flow returns, besides the places of the report.
        page: self-contained HTML; `files` are stored beside it in the report, by name.
        rows: the table; its artifact is called `table`.
        markdown: returns the results as Markdown, given how to reach the page.
        figures: artifact name -> its description and its figures, as caption -> SVG.
    """

    kind: str
    sentence: str
    data: Mapping[str, Any]
    page: str
    files: Mapping[str, bytes]
    table: str
    rows: Rows
    markdown: Callable[[str], str]
    figures: Mapping[str, tuple[str, Mapping[str, str]]]


class _StoppedError(Exception):
    """The run was asked to stop; raised where the computation reports its next step."""


async def run_findings(
    steps: Callable[[Tell], Iterator[Step]], findings: Callable[[Sequence[Step]], Findings], reports: str
) -> Any:
    """Compute, publish the results to a report store and artifacts, and return the final state of the run.

    `steps` keeps the processor busy in its own thread and reports each next step, which goes to the run's log. A
    stopped run ends at such a report, and publishes the completed steps.

    Raises:
        HeadgateError: if an argument cannot be used.
    """
    store = await report_store_for(reports)
    stop = StopRequest()
    with stop_on_signals(stop):
        async with heeding(stop):
            done = await asyncio.to_thread(_done, steps, stop)
        if not done:
            return await ended(stop, "Stopped before any step was complete", {})
        found = await asyncio.to_thread(findings, done)
        published = await write_report(store, {_PAGE: found.page, **found.files}, found.kind)
        await publish(f"{found.kind}-{found.table}", found.rows, found.sentence)
        await publish(f"{found.kind}-report", found.markdown(way_to_page(_PAGE, published)), found.sentence)
        for name, (says, figures) in found.figures.items():
            await publish(artifact_key(name), figures_markdown(figures), says)
        if link := published.links.get(_PAGE):
            await publish_link(f"{found.kind}-page", link, "Open the report", "Everything on one page.")
        run_logger().info("%s", found.sentence)
        return await ended(stop, found.sentence, {**found.data, **places_of(published)})


def _done(steps: Callable[[Tell], Iterator[Step]], stop: StopRequest) -> list[Step]:
    logger = run_logger()

    def tell(what: str) -> None:
        if stop.reason is not None:
            raise _StoppedError
        logger.info("%s", what)

    done: list[Step] = []
    with suppress(_StoppedError):
        for step in steps(tell):
            done.append(step)  # noqa: PERF402 - the steps before a stop are kept
    return done
