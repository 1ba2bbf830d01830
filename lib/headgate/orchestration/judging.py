"""Samples that a judge reads, as a flow run: inputs checked first, progress published, drained on every way out."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from blocks import JudgeRubric, ModelEndpoint, loaded_block
from headgate.config import Settings
from headgate.core import Model, errors
from headgate.environments.rubric import Rubric
from headgate.orchestration.inputs import (
    SamplingOrder,
    refuse_twice_given,
    roster_for,
    settings_of,
    store_for,
)
from headgate.orchestration.judged_artifacts import JudgedArtifacts, judged_sentence
from headgate.orchestration.limit_choices import slots_for
from headgate.orchestration.run_logs import library_logs_in_run
from headgate.orchestration.run_state import ended, require_server_clock, run_logger
from headgate.orchestration.run_trace import traced
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.run import JUDGE_PREFIX, RunResult, judge_of, run_judged


async def run_judging(
    sampling: SamplingOrder, instances: int, *, judge: str, judge_model: str, judgements: int | None, rubric: str
) -> Any:
    """Run a fixed matrix whose answers a judge reads, less what is stored, and return the final state.

    The parameters are those of the flow `evaluate_with_judge`; `sampling` has those that all flows share.

    Raises:
        SamplesKeepFailingError: if it stopped by itself because its samples kept failing.
        HeadgateError: if something that was given cannot be used; nothing was started then.
    """
    await require_server_clock()
    settings = settings_of(with_judge(sampling, judge_model, judgements))
    judging = await judge_for(judge, settings)
    judged_by = await rubric_block(rubric)
    slots = await slots_for(sampling.limits)
    store = await store_for(sampling.store, settings)
    stop = StopRequest()
    subject = f"judge-{settings.campaign}"
    artifacts = JudgedArtifacts(subject, judging.request_name, stop)

    @task(name=subject, task_run_name=subject, cache_policy=NO_CACHE, persist_result=False)
    async def judged() -> RunResult:
        """Take and judge the samples: the one task of the run, so that its graph shows when it worked."""
        return await run_judged(
            told,
            instances=instances,
            judge=judging,
            roster=roster,
            store=store,
            stop=stop.event,
            on_progress=artifacts.note,
            slots=slots,
            rubric=judged_by,
        )

    with stop_on_signals(stop), library_logs_in_run(), closing(store):
        async with (
            artifacts.published(),
            traced(settings, sampling.reports, subject) as told,
            roster_for(sampling, settings) as roster,
        ):
            result = await judged()
        message = judged_sentence(result)
        await artifacts.finish(result, message)
        run_logger().info("%s: %s", subject, message)
        if result.stopped_early and stop.reason is None:
            raise errors.SamplesKeepFailingError(f"stopped early: {result.stopped_by}; {message}")
        return await ended(stop, message, judged_data(result))


async def judge_for(block: str, settings: Settings) -> Model:
    """Return the judge behind a ModelEndpoint block, or the one that the settings name when no block is.

    Raises:
        InvalidInputError: if there is no such block, or nobody says what the judge is called.
    """
    if not block:
        return judge_of(settings)
    endpoint = await loaded_block(ModelEndpoint, block)
    name = settings.judge_model or endpoint.served_name
    if not name:
        raise errors.InvalidSettingError(
            f"the block {block!r} names no model, and neither does judge_model",
            next_step="Set the served name in the block, or the parameter judge_model.",
        )
    return endpoint.model(f"{JUDGE_PREFIX}{name}", served_name=name)


async def rubric_block(name: str) -> Rubric | None:
    """Return the rubric of a JudgeRubric block, None when no block is named.

    Raises:
        InvalidInputError: if there is no such block.
    """
    return (await loaded_block(JudgeRubric, name)).rubric() if name else None


def judged_data(result: RunResult) -> dict[str, Any]:
    """Return a result as a flow returns it."""
    pairs = result.progress.pairs
    return {
        "samples": result.samples,
        "scored": result.scored,
        "judge_errors": sum(pair.judge_errors for pair in pairs),
        "errors": sum(pair.errors for pair in pairs),
        "stored": result.stored,
        "spooled": result.spooled,
        "open_tasks": result.open_tasks,
        "stopped_by": result.stopped_by,
        "stopped_early": result.stopped_early,
        "alpha": {name: one.alpha for name, one in result.agreements},
    }


def with_judge(sampling: SamplingOrder, judge_model: str, judgements: int | None) -> SamplingOrder:
    """Return the sampling's order with what is asked of the judge among its settings.

    Raises:
        InvalidSettingError: if one of them is given twice.
    """
    asked = {"judge_model": judge_model or None, "judgements": judgements}
    given = {name: value for name, value in asked.items() if value is not None}
    refuse_twice_given(given, sampling.settings)
    return replace(sampling, settings={**sampling.settings, **given})
