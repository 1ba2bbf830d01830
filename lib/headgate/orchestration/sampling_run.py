"""A campaign as a flow run: inputs checked first, progress published, drained on every way out."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from headgate.core.errors import SamplesKeepFailingError
from headgate.core.status import CampaignStatus
from headgate.orchestration.artifacts import CampaignArtifacts, Share
from headgate.orchestration.inputs import SamplingOrder, roster_for, settings_of, store_for
from headgate.orchestration.judging import judge_for
from headgate.orchestration.limit_choices import slots_for
from headgate.orchestration.run_logs import library_logs_in_run
from headgate.orchestration.run_state import ended, require_server_clock, run_logger
from headgate.orchestration.run_trace import traced
from headgate.orchestration.score_rows import result_sentence
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.run import RunResult, run_campaign, sampled_environments


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


async def _run(
    order: SamplingOrder,
    subject: str,
    share: Share | None,
    *,
    duration_s: float | None = None,
    instances: int | None = None,
) -> Any:
    await require_server_clock()
    settings = settings_of(order)
    judge = await judge_for(order.judge, settings) if order.judge else None
    sampled_environments(settings, judge)
    slots = await slots_for(order.limits)
    store = await store_for(order.store, settings)
    stop = StopRequest()
    artifacts = CampaignArtifacts(subject, stop, share)

    @task(name=f"sample {subject}", task_run_name=f"sample {subject}", cache_policy=NO_CACHE, persist_result=False)
    async def sampled() -> RunResult:
        """Run the campaign: the one task of the run, so that its graph shows when it sampled."""
        return await run_campaign(
            told,
            roster=roster,
            store=store,
            slots=slots,
            duration_s=duration_s,
            instances=instances,
            judge=judge,
            stop=stop.event,
            on_status=artifacts.note,
        )

    with stop_on_signals(stop), library_logs_in_run(), closing(store):
        async with (
            artifacts.published(),
            traced(settings, order.reports, subject) as told,
            roster_for(order, settings) as roster,
        ):
            result = await sampled()
        message = result_sentence(result)
        await artifacts.finish(result.status, message, is_whole=stop.reason is None)
        run_logger().info("%s: %s", subject, message)
        if result.stopped_early and stop.reason is None:
            raise SamplesKeepFailingError(f"stopped early: {result.stopped_by}; {message}")
        if result.given_up and stop.reason is None:
            given_up = "; ".join(f"{model} given up after {why}" for model, why in result.given_up.items())
            raise SamplesKeepFailingError(f"{given_up}; {message}")
        return await ended(stop, message, result_data(result))


def result_data(result: RunResult) -> dict[str, Any]:
    """Return a campaign's result as a flow returns it."""
    return {
        "samples": result.samples,
        "scored": sum(pair.scored for pair in result.status.pairs),
        "errors": sum(pair.errors for pair in result.status.pairs),
        "stored": result.stored,
        "spooled": result.spooled,
        "open_tasks": result.open_tasks,
        "stopped_by": result.stopped_by,
        "stopped_early": result.stopped_early,
    }
