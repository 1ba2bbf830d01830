"""A campaign as a flow run: inputs checked first, progress published, drained on every way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from headgate.core.status import CampaignStatus
from headgate.orchestration.artifacts import RunArtifacts
from headgate.orchestration.campaign_task import concluded, run_in_phases
from headgate.orchestration.inputs import SamplingOrder, cluster_for, settings_of, with_queue
from headgate.orchestration.judging import judge_for
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import library_logs_in_run, require_server_clock
from headgate.orchestration.score_rows import progress_sentence, result_sentence, score_rows
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.run import RunResult, run_campaign, sampled_environments

Share = Callable[[CampaignStatus], float]
"""How much of a run is done, from 0 to 1."""


async def run_sampling(order: SamplingOrder, subject: str, *, duration_s: float | None = None) -> Any:
    """Sample by daily rates for `duration_s`, or until stopped, and return the state in which the flow run ends.

    Args:
        order: what to sample.
        subject: part of the artifacts' keys.
        duration_s: length of the window; None until stopped.

    Raises:
        HeadgateError: if something that was given cannot be used; nothing was started then.
        SamplesKeepFailingError: if it stopped by itself because its samples kept failing.
    """
    share: Share | None = None
    if duration_s is not None:
        seconds = duration_s

        def share(status: CampaignStatus) -> float:
            return (status.captured_at - status.started_at) / seconds

    return await _run(order, subject, share, duration_s=duration_s)


async def run_evaluation(order: SamplingOrder, instances: int) -> Any:
    """Run a fixed matrix of models × environments × instances, less what is stored, and return the final state.

    Raises:
        HeadgateError: if something that was given cannot be used; nothing was started then.
    """

    def share(status: CampaignStatus) -> float:
        due = status.samples + status.open_tasks
        return status.samples / due if due else 1.0

    return await _run(order, f"evaluate-{order.campaign}", share, instances=instances)


async def _run(order: SamplingOrder, subject: str, share: Share | None, **length: Any) -> Any:
    await require_server_clock()
    settings = await with_queue(settings_of(order), order.jobqueue)
    judge = await judge_for(order.judge, settings) if order.judge else None
    sampled_environments(settings, judge)
    stop = StopRequest()
    artifacts = RunArtifacts(
        subject,
        stop,
        sentence=progress_sentence,
        share=share,
        done=lambda status: status.samples,
        rows=score_rows,
    )
    cluster = await cluster_for(order.cluster, settings)
    campaign = partial(run_campaign, judge=judge, cluster=cluster, on_status=artifacts.note, **length)
    with stop_on_signals(stop), library_logs_in_run():
        result = await run_in_phases(campaign, order, settings, artifacts, stop, name=f"sample {subject}")
        message = result_sentence(result)
        is_whole = stop.reason is None
        await in_phase("publish", lambda: artifacts.finish(result.status, message, is_whole=is_whole))
        given_up = "; ".join(f"{model} given up after {why}" for model, why in result.given_up.items())
        failing = f"stopped early: {result.stopped_by}" if result.stopped_early else given_up
        return await concluded(stop, subject, message, result_data(result), failing=failing)


def result_data(result: RunResult) -> dict[str, Any]:
    """Return a campaign's result as a flow returns it."""
    pairs = result.status.pairs
    counts = {"scored": sum(pair.scored for pair in pairs), "errors": sum(pair.errors for pair in pairs)}
    ranking = {} if result.ranking is None else {"ranking": asdict(result.ranking)}
    return result.ending() | counts | ranking
