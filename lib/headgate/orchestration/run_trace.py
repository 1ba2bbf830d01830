"""The trace of a flow run: kept in a report store, and linked from the run."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from headgate.config import Settings
from headgate.core.errors import StoreNotWritableError
from headgate.orchestration.artifacts import publish, publish_link
from headgate.orchestration.inputs import report_store_for
from headgate.orchestration.pages import write_report
from headgate.orchestration.run_state import artifact_key, run_logger

_FILE: Final = "trace.json.gz"
_HOW: Final = "Open <https://ui.perfetto.dev> and drop the file on it; it is read in the browser and sent nowhere."


@contextlib.asynccontextmanager
async def traced(settings: Settings, reports: str, subject: str) -> AsyncIterator[Settings]:
    """Give settings under which a run leaves its trace, and publish it when the block is left.

    Without the name of a ReportStore block, or with a trace file in the settings, they are given as they are.

    Raises:
        InvalidInputError: if there is no such block.
    """
    if not reports or settings.trace_file:
        yield settings
        return
    store = await report_store_for(reports)
    with tempfile.TemporaryDirectory(prefix="headgate-trace-") as folder:
        trace = Path(folder) / _FILE
        try:
            yield settings.model_copy(update={"trace_file": str(trace)})
        finally:
            if trace.exists():
                content = await asyncio.to_thread(trace.read_bytes)
                try:
                    published = await write_report(store, {_FILE: content}, artifact_key("trace", subject))
                except StoreNotWritableError as error:
                    run_logger().warning("The trace of the run is not kept: %s", error)
                else:
                    await _publish(published.links.get(_FILE), published.places[_FILE], subject)


async def _publish(link: str | None, place: str, subject: str) -> None:
    key = artifact_key("trace", subject)
    if link is not None:
        await publish_link(key, link, "The trace of the run", f"{subject}: {_HOW}")
    else:
        await publish(key, f"The trace of the run is at\n\n`{place}`\n\n{_HOW}\n", f"{subject}: its trace.")
