"""Sentences that explain why requested samples are missing, or have no score."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import polars as pl

from headgate.core import redacted
from headgate.core.errors import some_of
from headgate.telemetry import counted, safe_text

_CELL: Final = ("model", "environment", "sequence")
_SHOWN_CHARS: Final = 300


def missing_lines(
    samples: pl.DataFrame,
    left_out: Set[tuple[str, str, int]] = frozenset(),
    *,
    journal: object = "",
    store: object = "",
    in_hand: Set[tuple[str, str, int]] = frozenset(),
    spooled: int = 0,
) -> list[str]:
    """Return lines about tasks that were not sampled, each kind of error that left tasks unscored, and cut-off answers.

    A task that has a score by now is not counted, and one that failed several times counts once.

    Args:
        samples: samples of the requested tasks, with their errors.
        left_out: model, environment and sequence of tasks that the journal did not assign.
        journal: folder or address of the journal.
        store: address of the store.
        in_hand: those of `left_out` that another run will sample.
        spooled: number of samples in the journal that are not in the store yet.
    """
    left, of_journal = left_out - set(samples.select(_CELL).iter_rows()), f"the journal {redacted(str(journal))}"
    lines = []
    if count := len(left & in_hand):
        what = f"{counted(count, 'task')} that {of_journal} has given to another run"
        lines.append(f"not taken: {what}; run the same command again when that run has ended")
    if spooled:
        what = f"{counted(spooled, 'sample')} in {of_journal}; the next run of this journal stores them"
        lines.append(f"not yet in the store {store}: {what}, and `headgate doctor` says whether it can be written")
    elif count := len(left - in_hand):
        what = f"{counted(count, 'task')} that {of_journal} has assigned before, but for which the store {store} has no"
        lines.append(f"not taken: {what} sample; name the store that has them, or another journal to take them again")
    kinds = (
        samples.sort("finished_at")
        .group_by(_CELL, maintain_order=True)
        .agg(pl.col("score").is_not_null().any().alias("is_scored"), pl.col("error_kind", "error").last())
        .filter(~pl.col("is_scored"))
        .group_by("error_kind", maintain_order=True)
        .agg(pl.len().alias("samples"), pl.col("error").first())
    )
    for kind, count, error in kinds.iter_rows():
        said = safe_text(" ".join(str(error).split()), limit_chars=_SHOWN_CHARS)
        lines.append(f"{count} without a score: {kind}, such as {said}")
    if "finish_reason" in samples.columns and (cut := samples.filter(pl.col("finish_reason") == "length")).height:
        whose = some_of(sorted(cut["model"].unique()), 5)
        lines.append(f"{cut.height} with an answer cut off at its token limit: {whose}; raise max_tokens")
    return [safe_text(line) for line in lines]
