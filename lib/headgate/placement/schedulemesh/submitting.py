"""One submission: asked for, waited for, and taken back where it does not run in time."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

from headgate.core.errors import HeadgateError
from headgate.placement.cluster.live_actor import actor_of, is_made
from headgate.placement.cluster.placed import PlacedWork
from headgate.placement.errors import PlacementLostError, WorkFailedError
from headgate.placement.outcomes import Why
from headgate.placement.schedulemesh.agent import Agent
from headgate.placement.service.values import WorkView

ENDING_S: Final = 10.0
"""How long what was given back is waited for until it is seen gone."""


def running(agent: Agent, wait_s: float) -> dict[str, Any]:
    """Return the result of a submission: the agent with its handle once it runs.

    What does not run within `wait_s` is withdrawn, with what held it in the answer; nothing stays behind.
    """
    until = time.monotonic() + wait_s
    try:
        while True:
            view = agent.work.wait_running(max(0.0, until - time.monotonic()))
            actor = _made(agent.work, until)
            if actor is not None:
                return {"success": True, "task_id": agent.spec.task_id, "agent": agent.told(view, actor)}
    except TimeoutError:
        return _withdrawn(agent.work, wait_s)
    except PlacementLostError as error:
        return _ended(agent.work, error)


def refused(error: HeadgateError) -> dict[str, Any]:
    """Return the result of what was refused at once."""
    return {"success": False, "error": error.message, "reason": error.code, "next_step": error.next_step}


def ended(work: PlacedWork) -> WorkView:
    """Return where work stands once it is seen gone, or after a while where it is not."""
    with suppress(TimeoutError):
        return work.wait(ENDING_S)
    return work.view()


def _made(work: PlacedWork, until: float) -> Any:
    """Return the actor once its constructor has returned; None where it was taken away before that."""
    try:
        actor = actor_of(work)
    except PlacementLostError:
        # Stopped for something else since, which queues it again; or not made at all, which ends it.
        if _stays_away(work):
            raise
        return None
    if is_made(actor, max(0.0, until - time.monotonic())):
        return actor
    if _stays_away(work):
        raise PlacementLostError(f"The constructor of {work.request_id} raised")
    return None


def _stays_away(work: PlacedWork) -> bool:
    """Tell whether work that is not there has ended; a stop or an end may be under way."""
    with suppress(TimeoutError):
        return work.wait(1.0).stage.has_ended
    return False


def _withdrawn(work: PlacedWork, wait_s: float) -> dict[str, Any]:
    why = work.why()
    work.cancel(f"it did not run within {wait_s:g} s")
    ended(work)
    steps = [rejected.step for rejected in why.rejected]
    return {
        "success": False,
        "error": f"{work.request_id} did not run within {wait_s:g} s and was withdrawn: {why.says}",
        "reason": "preemption_failed" if "preemption" in steps else "not_placed_in_time",
        "why": _told(why),
    }


def _ended(work: PlacedWork, error: PlacementLostError) -> dict[str, Any]:
    told = error.message
    with suppress(PlacementLostError, TimeoutError):
        try:
            work.result(ENDING_S)
        except WorkFailedError as failure:
            told = failure.message
    return {"success": False, "error": told, "reason": "agent_creation_failed"}


def _told(why: Why) -> dict[str, Any]:
    return {
        "stage": why.stage.value,
        "says": why.says,
        "ahead": why.ahead,
        "rejected": [{"step": each.step, "says": each.says} for each in why.rejected],
    }
