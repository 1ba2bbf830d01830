"""Why samples that somebody asked for are not there, or have no score: sentences for people."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import polars as pl

from headgate.core import redacted
from headgate.telemetry import counted, safe_text

_CELL: Final = ("model", "environment", "sequence")
_SHOWN_CHARS: Final = 300


def missing_lines(
    samples: pl.DataFrame,
    left_out: Set[tuple[str, str, int]] = frozenset(),
    *,
    journal: object = "",
    store: object = "",
    is_elsewhere: bool = False,
) -> list[str]:
    """Return a line on tasks that were not taken, and one on each kind of error that left tasks without a score.

    A task that has a score by now is no such task, and one that failed several times is one.

    Args:
        samples: of the tasks that were asked for, with their errors.
        left_out: model, environment and sequence of tasks that the journal did not give.
        journal: its folder or address.
        store: where the samples are.
        is_elsewhere: whether another run has tasks of the journal in hand, or samples to store.
    """
    lines = []
    if left := len(left_out - set(samples.select(_CELL).iter_rows())):
        what = f"{counted(left, 'task')} that the journal {redacted(str(journal))} has given"
        if is_elsewhere:
            lines.append(f"not taken: {what} to another run; run the same again when that one has ended")
        else:
            lines.append(
                f"not taken: {what} out before, and of which the store {store} has no sample; name the store that has, "
                "or another journal to take them again"
            )
    kinds = (
        samples.sort("finished_at")
        .group_by(_CELL, maintain_order=True)
        .agg(pl.col("score").is_not_null().any().alias("is_scored"), pl.col("error_kind", "error").last())
        .filter(~pl.col("is_scored"))
        .group_by("error_kind", maintain_order=True)
        .agg(pl.len().alias("samples"), pl.col("error").first())
    )
    for kind, count, error in kinds.iter_rows():
        said = " ".join(str(error).split())
        said = said if len(said) <= _SHOWN_CHARS else f"{said[: _SHOWN_CHARS - 1]}…"
        lines.append(f"{count} without a score: {kind}, such as {said}")
    return [safe_text(line) for line in lines]
