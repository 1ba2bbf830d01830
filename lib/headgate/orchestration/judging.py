"""Samples that a judge reads, as a flow run: inputs checked first, progress published, drained on every way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from blocks import JudgeRubric, ModelEndpoint, loaded_block
from headgate.config import Settings
from headgate.core import Model, errors
from headgate.environments.rubric import Rubric
from headgate.orchestration.artifacts import RunArtifacts, markdown_table, publish
from headgate.orchestration.campaign_task import concluded, run_in_phases
from headgate.orchestration.inputs import SamplingOrder, refuse_twice_given, settings_of
from headgate.orchestration.pages import MAX_ROWS
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import artifact_key, require_server_clock
from headgate.run import JUDGE_PREFIX, JudgedPair, RunProgress, RunResult, judge_of, run_judged
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
    subject = f"judge-{settings.campaign}"
    artifacts = RunArtifacts(
        subject,
        sentence=progress_sentence,
        share=lambda progress: progress.share,
        done=lambda progress: progress.recorded,
        rows=lambda progress: judged_rows(progress.pairs),
    )
    campaign = partial(
        run_judged, instances=instances, judge=judging, on_progress=artifacts.note, rubric=await rubric_block(rubric)
    )
    with artifacts.heeded():
        result = await run_in_phases(campaign, sampling, settings, artifacts, name=subject)
        message = judged_sentence(result)

        async def published() -> None:
            await artifacts.finish(result.progress, message)
            page = judged_markdown(judging.request_name, result, message)
            await publish(artifact_key("judged", result.progress.campaign), page, message)

        await in_phase("publish", published)
        failing = f"stopped early: {result.stopped_by}" if result.stopped_early else ""
        return await concluded(artifacts, message, judged_data(result), failing=failing)


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
