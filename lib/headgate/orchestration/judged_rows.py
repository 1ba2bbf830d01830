"""A run with a judge as rows of a table artifact, as a page and as one sentence, numbers formatted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.orchestration.artifacts import markdown_table
from headgate.orchestration.pages import MAX_ROWS
from headgate.run import JudgedPair, RunProgress, RunResult
from headgate.statistics import Agreement

_LEGEND: Final = (
    "*Agreement* is 1 minus the mean distance between two judgements of one answer. A sample without a verdict is a "
    "judge error: it has no score, and is in no mean."
)

_ALPHA: Final = (
    "*Alpha* is Krippendorff's: 1 when all judgements of an answer are equal, 0 when they differ as much as those of "
    "different answers. *Spread* is the mean distance between two judgements of one answer."
)


def progress_sentence(progress: RunProgress) -> str:
    """Return where a run stands, in one line."""
    return (
        f"{progress.state}: {progress.recorded:,} of {progress.samples:,} samples recorded; "
        f"{progress.rollouts:,} rollouts in progress; {progress.unjudged:,} answers with the judge"
    )


def judged_sentence(result: RunResult) -> str:
    """Return what a run did, in one line."""
    parts = [f"{result.scored:,} of {result.samples:,} samples scored", f"{result.stored:,} stored"]
    if result.spooled or result.open_tasks:
        parts.append(f"whole campaign: {result.spooled:,} awaiting upload, {result.open_tasks:,} tasks unfinished")
    return "; ".join(parts)


def judged_rows(pairs: Sequence[JudgedPair]) -> list[dict[str, str]]:
    """Return one row per model and environment, at most `MAX_ROWS`; an environment that is the only one is left out."""
    rows = [_row(pair) for pair in pairs[:MAX_ROWS]]
    if len({row["environment"] for row in rows}) == 1:
        for row in rows:
            del row["environment"]
    return rows


def judged_markdown(judge: str, result: RunResult, sentence: str) -> str:
    """Return the scores as a page."""
    parts = [f"# Judged by {judge}", f"{sentence}. {result.stopped_by.capitalize()}."]
    parts.append(markdown_table(judged_rows(result.progress.pairs)))
    if result.agreements:
        rows = [_agreement(name, one) for name, one in result.agreements[:MAX_ROWS]]
        parts += ["## Agreement of judgements", markdown_table(rows), _ALPHA]
    return "\n\n".join(filter(None, [*parts, _LEGEND])) + "\n"


def _agreement(environment: str, one: Agreement) -> dict[str, str]:
    return {
        "environment": environment,
        "answers": f"{one.answers:,}",
        "judgements": f"{one.judgements:,}",
        "alpha": "–" if one.alpha is None else f"{one.alpha:.2f}",
        "95 % interval": "–" if one.low is None or one.high is None else f"{one.low:.2f} to {one.high:.2f}",
        "spread": f"{one.spread:.2f}",
    }


def _row(pair: JudgedPair) -> dict[str, str]:
    return {
        "model": pair.model,
        "environment": pair.environment,
        "samples": f"{pair.samples:,}",
        "scored": f"{pair.scored:,}",
        "mean": "" if pair.mean_score is None else f"{pair.mean_score:.3f}",
        "successes": f"{pair.successes:,}",
        "judgements": f"{pair.judgements:,}",
        "agreement": "" if pair.agreement is None else f"{pair.agreement:.2f}",
        "judge errors": f"{pair.judge_errors:,}",
        "errors": f"{pair.errors:,}",
    }
