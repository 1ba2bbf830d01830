"""Samples that a judge reads, as a flow run: inputs checked first, progress published, drained on every way out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from blocks import JudgeRubric, ModelEndpoint, loaded_block
from headgate.config import Settings
from headgate.core import Model, errors
from headgate.environments.rubric import Rubric
from headgate.orchestration.artifacts import RunArtifacts, publish
from headgate.orchestration.campaign_task import concluded, run_in_phases
from headgate.orchestration.inputs import SamplingOrder, refuse_twice_given, settings_of
from headgate.orchestration.judged_rows import judged_markdown, judged_rows, judged_sentence, progress_sentence
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import artifact_key, library_logs_in_run, require_server_clock
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
    stop = StopRequest()
    subject = f"judge-{settings.campaign}"
    artifacts = RunArtifacts(
        subject,
        stop,
        sentence=progress_sentence,
        share=lambda progress: progress.share,
        done=lambda progress: progress.recorded,
        rows=lambda progress: judged_rows(progress.pairs),
    )
    campaign = partial(
        run_judged, instances=instances, judge=judging, on_progress=artifacts.note, rubric=await rubric_block(rubric)
    )
    with stop_on_signals(stop), library_logs_in_run():
        result = await run_in_phases(campaign, sampling, settings, artifacts, stop, name=subject)
        message = judged_sentence(result)

        async def published() -> None:
            await artifacts.finish(result.progress, message)
            page = judged_markdown(judging.request_name, result, message)
            await publish(artifact_key("judged", result.progress.campaign), page, message)

        await in_phase("publish", published)
        failing = f"stopped early: {result.stopped_by}" if result.stopped_early else ""
        return await concluded(stop, subject, message, judged_data(result), failing=failing)


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
        **result.ending(),
        "judge_errors": sum(pair.judge_errors for pair in pairs),
        "errors": sum(pair.errors for pair in pairs),
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
