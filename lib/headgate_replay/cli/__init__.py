"""The commands that replay traces; entry points name them, so that `headgate` lists them with its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli import console

__all__ = ["replaying"]


@contextmanager
def replaying(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call before each replay; while the context lasts, a terminal on stderr shows the progress."""
    if not sys.stderr.isatty():
        yield lambda _what: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(name, total=total, what="", completed=-1)  # a replay is announced before it is done
        yield lambda what: progress.update(task, advance=1, what=what)
