"""Artifacts of a flow run with a judge: its progress, and at the end the scores as a table and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headgate.orchestration.artifacts import RunArtifacts, publish_markdown, publish_table
from headgate.orchestration.run_state import artifact_key
from headgate.orchestration.score_rows import MAX_ROWS
from headgate.orchestration.stop_request import StopRequest
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


class JudgedArtifacts(RunArtifacts[RunProgress]):
    """The progress and the scores of one flow run with a judge."""

    def __init__(self, subject: str, judge: str, stop: StopRequest) -> None:
        """Prepare the artifacts; `judge` is the judge's name, for the reader."""
        super().__init__(subject, stop)
        self._subject = subject
        self._judge = judge

    async def finish(self, result: RunResult, sentence: str) -> None:
        """Publish the scores, and how much is done."""
        rows = judged_rows(result.progress.pairs)
        await publish_table(artifact_key("scores", self._subject), rows, sentence)
        page = judged_markdown(self._judge, result, sentence)
        await publish_markdown(artifact_key("judged", result.progress.campaign), page, sentence)
        await self._progress.show(result.progress.share, sentence)

    async def _publish(self, newest: RunProgress, *, with_table: bool) -> None:  # noqa: ARG002
        await self._progress.show(newest.share, progress_sentence(newest))


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


def judged_rows(pairs: Sequence[JudgedPair]) -> list[dict[str, Any]]:
    """Return one row per model and environment, at most `MAX_ROWS`; an environment that is the only one is left out."""
    rows = [_row(pair) for pair in pairs[:MAX_ROWS]]
    if len({row["environment"] for row in rows}) == 1:
        for row in rows:
            del row["environment"]
    return rows


def judged_markdown(judge: str, result: RunResult, sentence: str) -> str:
    """Return the scores as a page."""
    rows = judged_rows(result.progress.pairs)
    lines = [f"# Judged by {_cell(judge)}", "", f"{sentence}. {result.stopped_by.capitalize()}.", ""]
    if rows:
        lines += [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
        lines += [f"| {' | '.join(_cell(value) for value in row.values())} |" for row in rows]
    if result.agreements:
        lines += ["", "## Agreement of judgements", "", *agreement_table(result.agreements), "", _ALPHA]
    return "\n".join([*lines, "", _LEGEND]) + "\n"


def agreement_table(agreements: Sequence[tuple[str, Agreement]]) -> list[str]:
    """Return how far judgements agree as the lines of a Markdown table."""
    lines = [
        "| environment | answers | judgements | alpha | 95 % interval | spread |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, one in agreements[:MAX_ROWS]:
        alpha = "–" if one.alpha is None else f"{one.alpha:.2f}"
        interval = "–" if one.low is None or one.high is None else f"{one.low:.2f} to {one.high:.2f}"
        lines.append(
            f"| {_cell(name)} | {one.answers:,} | {one.judgements:,} | {alpha} | {interval} | {one.spread:.2f} |"
        )
    return lines


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


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
