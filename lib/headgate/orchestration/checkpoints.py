"""The flow `follow-checkpoints`: evaluates a training's checkpoints as they appear, and publishes the results."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from prefect.events import emit_event

from headgate import reports
from headgate.core.status import CampaignStatus
from headgate.orchestration.artifacts import RunArtifacts
from headgate.orchestration.campaign_task import concluded, run_in_phases
from headgate.orchestration.inputs import SamplingOrder, judge_for, report_store_for, settings_of
from headgate.orchestration.pages import publish_board
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import artifact_key, require_server_clock, run_logger
from headgate.orchestration.sampling_run import progress_sentence
from headgate.run import FollowOrder, FollowResult, follow_checkpoints
from headgate.telemetry import counted

SCORED = "checkpoint.scored"
REGRESSED = "checkpoint.regressed"
"""Prefect events, for triggers: the resource is `headgate.checkpoint.NAME`, the payload a row of the curve."""


async def run_following(
    order: SamplingOrder, followed: FollowOrder, *, once: bool, duration_s: float | None, published_in: str
) -> Any:
    """Evaluate checkpoints as they appear, publish the curve after each, and return the final state.

    The parameters are those of the flow `follow-checkpoints`; the roster of `order` is not read.

    Raises:
        HeadgateError: if an argument cannot be used; nothing has been started then.
        SamplesKeepFailingError: if none of the evaluated checkpoints has a score.
    """
    await require_server_clock()
    settings = settings_of(order)
    judge = await judge_for(order.judge, settings) if order.judge else None
    pages = await report_store_for(published_in)
    name = followed.model_name
    subject = artifact_key("checkpoints", name)
    artifacts = RunArtifacts[CampaignStatus](subject, sentence=progress_sentence)

    async def publish(curve: reports.CheckpointCurve, point: reports.CheckpointScore | None) -> None:
        if point is None:
            return
        _emit(name, point)  # first: an unwritable page ends the run, and the next run would not emit this one
        sentence = curve_sentence(curve, point)
        run_logger().info("%s", sentence)
        board = partial(
            publish_board,
            subject,
            pages,
            reports.curve_view(curve, title=f"Checkpoints of {name}"),
            document=reports.curve_document(curve),
            rows=reports.curve_rows(curve),
            sentence=sentence,
        )
        await in_phase(f"publish {point.model}", board, asset=pages.url, what="reports")

    following = partial(
        _following,
        followed=followed,
        until_idle=once,
        duration_s=duration_s,
        judge=judge,
        on_curve=publish,
        on_status=artifacts.note,
    )
    with artifacts.heeded():
        rosterless, phase = replace(order, roster=""), f"follow {name}"
        result: FollowResult = await run_in_phases(
            following, rosterless, settings, artifacts, name=phase, is_traced=False, has_roster=False
        )
        best = result.curve.best
        evaluated = counted(len(result.evaluated), "checkpoint")
        message = f"{evaluated} of {name} evaluated; the best is {best.model if best else 'none'}"
        failing = next((f"{one}: {why}" for one, why in result.failed.items()), "") if best is None else ""
        return await concluded(artifacts, message, result.document(), failing=failing)


async def _following(
    settings: Any,
    *,
    followed: FollowOrder,
    roster: object,  # noqa: ARG001
    sinks: object,  # noqa: ARG001
    **given: Any,
) -> FollowResult:
    """Follow, as one task of the run. Checkpoints need no roster; the end of one evaluation does not end the run."""
    return await follow_checkpoints(settings, followed, **given)


def curve_sentence(curve: reports.CheckpointCurve, point: reports.CheckpointScore) -> str:
    """Return in one sentence what the new checkpoint's score means."""
    if point.mean is None:
        return f"{point.model} has no score"
    made, versus = point.difference, point.versus
    apart = f", {made.difference:+.3f} from {versus.against}: {point.verdict}" if made and versus else ""
    best = "; the best so far" if curve.best is point else ""
    return f"{point.model} scores {point.mean.mean:.3f} ({point.mean.low:.3f} to {point.mean.high:.3f}){apart}{best}"


def _emit(name: str, point: reports.CheckpointScore) -> None:
    """Emit Prefect events about a checkpoint, for automations."""
    resource = {"prefect.resource.id": f"headgate.checkpoint.{name}", "prefect.resource.name": point.model}
    payload = reports.point_document(point)
    if point.mean is not None:
        emit_event(SCORED, resource, payload=payload)
    if point.is_regression:
        emit_event(REGRESSED, resource, payload=payload)
