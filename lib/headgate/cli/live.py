"""Live terminal output of a running command: a progress bar, or a view that is redrawn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from headgate.cli.output import console
from headgate.core.errors import HeadgateError
from headgate.telemetry import safe_text


def watched(view: Callable[[], RenderableType], every_s: float) -> int:
    """Redraw a view until Ctrl-C, and return the exit status; an outage is shown until it is over."""
    with Live(console=console(), refresh_per_second=4) as live, suppress(KeyboardInterrupt):
        while True:
            try:
                live.update(view())
            except HeadgateError as error:
                live.update(Text(safe_text(error.message), overflow="fold"))
            time.sleep(every_s)
    return 0


@contextmanager
def progress_bar(what: str, *, is_shown: bool, foretells: bool = False) -> Iterator[Callable[..., None] | None]:
    """Yield a function that moves a bar, by `completed`, `total` and `description`; None unless `is_shown`."""
    if not is_shown:
        yield None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TimeRemainingColumn()] if foretells else []
    with Progress(*columns, console=console(), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda completed, total=None, description=what: bar.update(
            task, completed=completed, total=total, description=description
        )
