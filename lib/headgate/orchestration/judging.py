"""A judged evaluation as a flow run: checks inputs first, publishes progress, and drains however the run ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from headgate.core.status import JudgedPair
from headgate.orchestration.artifacts import markdown_table, publish
from headgate.orchestration.campaign_task import concluded, run_in_phases
from headgate.orchestration.inputs import SamplingOrder, judge_for, rubric_block, settings_of, with_judge
from headgate.orchestration.pages import MAX_ROWS
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import artifact_key, require_server_clock
from headgate.orchestration.sampling_run import campaign_artifacts, result_sentence
from headgate.run import RunResult, run_judged
from headgate.statistics import Agreement

_LEGEND: Final = (
    "*Agreement* is 1 minus the mean distance between two judgements of one answer. A sample without a verdict is a "
    "judge error: it has no score, and is in no mean."
)

_ALPHA: Final = (
    "*Alpha* is Krippendorff's: 1 when all judgements of an answer are equal, 0 when they differ as much as those of "
    "different answers. *Spread* is the mean distance between two judgements of one answer."
)


def judged_rows(pairs: Sequence[JudgedPair]) -> list[dict[str, str]]:
    """Return one row per model and environment, at most `MAX_ROWS`; without the environment if there is only one."""
    rows = [_row(pair) for pair in pairs[:MAX_ROWS]]
    if len({row["environment"] for row in rows}) == 1:
        for row in rows:
            del row["environment"]
    return rows


def judged_markdown(judge: str, result: RunResult, sentence: str) -> str:
    """Return the scores as a Markdown page."""
    parts = [f"# Judged by {judge}", f"{sentence}. {result.stopped_by.capitalize()}."]
    parts.append(markdown_table(judged_rows(result.status.judged)))
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
    """Run a fixed matrix whose answers a judge scores, except for what is stored, and return the final state.

    The parameters are those of the flow `evaluate_with_judge`; `sampling` has those that all flows share.

    Raises:
        SamplesKeepFailingError: if the run stopped early because its samples kept failing.
        HeadgateError: if an argument cannot be used; nothing has been started then.
    """
    await require_server_clock()
    settings = settings_of(with_judge(sampling, judge_model, judgements))
    judging = await judge_for(judge, settings)
    subject = f"judge-{settings.campaign}"
    artifacts = campaign_artifacts(subject, rows=lambda status: judged_rows(status.judged))
    campaign = partial(
        run_judged, instances=instances, judge=judging, on_status=artifacts.note, rubric=await rubric_block(rubric)
    )
    with artifacts.heeded():
        result = await run_in_phases(campaign, sampling, settings, artifacts, name=subject)
        message = result_sentence(result)

        async def published() -> None:
            await artifacts.finish(result.status, message)
            page = judged_markdown(judging.request_name, result, message)
            await publish(artifact_key("judged", result.status.campaign), page, message)

        await in_phase("publish", published)
        failing = f"stopped early: {result.stopped_by}" if result.stopped_early else ""
        return await concluded(artifacts, message, judged_data(result), failing=failing)


def judged_data(result: RunResult) -> dict[str, Any]:
    """Return the data that the flow returns for a result."""
    pairs = result.status.judged
    return {
        **result.ending(),
        "judge_errors": sum(pair.judge_errors for pair in pairs),
        "errors": sum(pair.errors for pair in pairs),
        "alpha": {name: one.alpha for name, one in result.agreements},
    }
