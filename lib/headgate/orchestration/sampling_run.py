"""A campaign as a flow run: checks inputs first, publishes progress, and drains however the run ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from typing import Any, Final

from headgate.core.status import CampaignStatus, ModelStatus, PairStatus
from headgate.orchestration.artifacts import Rows, RunArtifacts
from headgate.orchestration.campaign_task import concluded, run_in_phases
from headgate.orchestration.inputs import SamplingOrder, cluster_for, judge_for, settings_of, with_queue
from headgate.orchestration.pages import MAX_ROWS
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import require_server_clock
from headgate.reports import percent, ranking_lines
from headgate.run import RunResult, run_campaign, sampled_environments


def score_rows(status: CampaignStatus) -> list[dict[str, str]]:
    """Return one row per model and environment, at most `MAX_ROWS`.

    The UI shows eight short columns without scrolling, so the environment is omitted if it is the same in all rows, and
    the share of missing scores if none is missing.
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
    """Return the progress of a running campaign in one line."""
    paused = sum(model.is_paused for model in status.models)
    scored = sum(pair.scored for pair in status.pairs)
    parts = [
        f"{scored:,} of {status.samples:,} samples scored",
        f"{len(status.models)} models" + (f", {paused} paused" if paused else ""),
        f"{status.workers.active} of {status.workers.total} workers busy",
        f"{status.queue.size + status.queue.buffered:,} queued",
        f"{status.stored:,} stored, {status.spooled:,} spooled",
    ]
    if status.judged or status.unjudged:
        parts.append(f"{status.unjudged:,} answers with the judge")
    return f"{status.state}: {'; '.join(parts)}"


def result_sentence(result: RunResult) -> str:
    """Return the result of a campaign in one line."""
    scored = sum(pair.scored for pair in result.status.pairs)
    errors = sum(pair.errors for pair in result.status.pairs)
    parts = [f"{scored:,} of {result.samples:,} samples scored, {errors:,} errors", f"{result.stored:,} stored"]
    # The journal belongs to the campaign, so these counts include work that its other runs have in progress.
    if result.spooled or result.open_tasks:
        parts.append(f"whole campaign: {result.spooled:,} awaiting upload, {result.open_tasks:,} tasks unfinished")
    if result.ranking is not None:
        parts.append(ranking_lines(result.ranking)[0])
    if result.empty_because:
        parts.append(result.empty_because)
    return "; ".join(parts)


Share = Callable[[CampaignStatus], float]

SHARE_OF_DUE: Final[Share] = attrgetter("share")
"""The share of a run that is done, from 0 to 1."""


async def run_sampling(order: SamplingOrder, subject: str, *, duration_s: float | None = None) -> Any:
    """Sample at daily rates for `duration_s`, or until stopped, and return the final state of the flow run.

    Raises:
        HeadgateError: if an argument cannot be used; nothing has been started then.
        SamplesKeepFailingError: if the run stopped early because its samples kept failing.
    """
    share = None if duration_s is None else lambda status: (status.captured_at - status.started_at) / duration_s
    return await _run(order, subject, share, duration_s=duration_s)


async def run_evaluation(order: SamplingOrder, instances: int) -> Any:
    """Run a fixed matrix of models × environments × instances, except for what is stored; return the final state.

    Raises:
        HeadgateError: if an argument cannot be used; nothing has been started then.
    """
    return await _run(order, f"evaluate-{order.campaign}", SHARE_OF_DUE, instances=instances)


def campaign_artifacts(
    subject: str, *, share: Share | None = SHARE_OF_DUE, rows: Callable[[CampaignStatus], Rows] | None = None
) -> RunArtifacts[CampaignStatus]:
    """Return the artifacts of a campaign's flow run; see `RunArtifacts`."""
    return RunArtifacts(subject, sentence=progress_sentence, share=share, done=lambda status: status.samples, rows=rows)


async def _run(order: SamplingOrder, subject: str, share: Share | None, **length: Any) -> Any:
    await require_server_clock()
    settings = await with_queue(settings_of(order), order.jobqueue)
    judge = await judge_for(order.judge, settings) if order.judge else None
    sampled_environments(settings, judge)
    artifacts = campaign_artifacts(subject, share=share, rows=score_rows)
    cluster = await cluster_for(order.cluster, settings)
    campaign = partial(run_campaign, judge=judge, cluster=cluster, on_status=artifacts.note, **length)
    with artifacts.heeded() as stop:
        result = await run_in_phases(campaign, order, settings, artifacts, name=f"sample {subject}")
        message = result_sentence(result)
        is_whole = stop.reason is None
        await in_phase("publish", lambda: artifacts.finish(result.status, message, is_whole=is_whole))
        given_up = "; ".join(f"{model} given up after {why}" for model, why in result.given_up.items())
        failing = f"stopped early: {result.stopped_by}" if result.stopped_early else given_up
        return await concluded(artifacts, message, result_data(result), failing=failing)


def result_data(result: RunResult) -> dict[str, Any]:
    """Return the data that the flow returns for a campaign's result."""
    pairs = result.status.pairs
    counts = {"scored": sum(pair.scored for pair in pairs), "errors": sum(pair.errors for pair in pairs)}
    ranking = {} if result.ranking is None else {"ranking": asdict(result.ranking)}
    return result.ending() | counts | ranking
