"""A campaign's status as rows of a table artifact and as one sentence, numbers formatted: the UI formats none."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.core.status import CampaignStatus, ModelStatus, PairStatus
from headgate.orchestration.pages import MAX_ROWS
from headgate.reports import percent, ranking_lines
from headgate.run import RunResult


def score_rows(status: CampaignStatus) -> list[dict[str, str]]:
    """Return one row per model and environment, at most `MAX_ROWS`.

    The UI shows eight short columns without scrolling, so an environment that is the same in all rows is left out, and
    so is the share of missing scores where none is missing.
    """
    models = {model.model: model for model in status.models}
    rows = [_row(pair, models) for pair in status.pairs[:MAX_ROWS]]
    same = {name for name in ("environment",) if len({row[name] for row in rows}) == 1}
    same |= {"missing"} if all(pair.scored == pair.done for pair in status.pairs[:MAX_ROWS]) else set()
    return [{name: cell for name, cell in row.items() if name not in same} for row in rows]


def _row(pair: PairStatus, models: Mapping[str, ModelStatus]) -> dict[str, str]:
    mean = pair.mean_score
    model = models.get(pair.model)
    return {
        "model": pair.model,
        "environment": pair.environment,
        "samples": f"{pair.done:,}",
        "scored": f"{pair.scored:,}",
        "mean": "" if mean is None else f"{mean:.3f}",
        "missing": percent(1 - pair.scored / pair.done) if pair.done else "",
        "errors": f"{pair.errors:,}",
        "per day": f"{pair.rate_per_day:,.0f}",
        "24 h": "" if model is None else f"{sum(model.samples_24h.values()):,}",
        "state": _state(model),
    }


def _state(model: ModelStatus | None) -> str:
    if model is None:
        return "left the roster"
    return f"paused: {model.pause_reason}" if model.is_paused else "sampled"


def progress_sentence(status: CampaignStatus) -> str:
    """Return where a running campaign stands, in one line."""
    paused = sum(model.is_paused for model in status.models)
    scored = sum(pair.scored for pair in status.pairs)
    parts = [
        f"{scored:,} of {status.samples:,} samples scored",
        f"{len(status.models)} models" + (f", {paused} paused" if paused else ""),
        f"{status.workers.active} of {status.workers.total} workers busy",
        f"{status.queue.size + status.queue.buffered:,} queued",
        f"{status.stored:,} stored, {status.spooled:,} spooled",
    ]
    return f"{status.state}: {'; '.join(parts)}"


def result_sentence(result: RunResult) -> str:
    """Return what a campaign did, in one line."""
    scored = sum(pair.scored for pair in result.status.pairs)
    errors = sum(pair.errors for pair in result.status.pairs)
    parts = [f"{scored:,} of {result.samples:,} samples scored, {errors:,} errors", f"{result.stored:,} stored"]
    # The journal is the campaign's: what other runs of it have in progress is counted with it.
    if result.spooled or result.open_tasks:
        parts.append(f"whole campaign: {result.spooled:,} awaiting upload, {result.open_tasks:,} tasks unfinished")
    if result.ranking is not None:
        parts.append(ranking_lines(result.ranking)[0])
    if result.empty_because:
        parts.append(result.empty_because)
    return "; ".join(parts)
