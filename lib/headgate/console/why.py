"""What holds a task, a job, a placement or a request: the gates on its way, and when each one opens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from headgate.console.asking import PlacementSource, RunSource, ServiceSource, answered, key_of
from headgate.console.gates import Step, gates_of, step_of_key
from headgate.console.pages import Console
from headgate.console.sources import Source, Sources
from headgate.core.errors import HeadgateError
from headgate.placement import Occupancy

MOST_WAITING: Final = 25
_ASKED_TASKS: Final = 400
_HOLDS_ELSEWHERE: Final = {
    "request_admission": "Requests",
    "request": "Requests",
    "engine": "Engines",
    "daily_budget": "Budget",
    "backpressure": "Ready queue",
    "batch": "Ready queue",
    "model_pause": "Model",
    "paused": "Model",
    "no_capacity": "Workers",
    "fair_share": "Fair share",
}
"""Gate, as a campaign names it -> its step in the chain."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one thing.

    Attributes:
        what: `task`, `job`, `placement` or `request`.
        name: its id.
        state: its state.
        says: what holds it.
        asked: name of the source that answered.
        until: when that ends by itself (wall time), where it is known.
        chain: gates on its way, in order.
        facts: further figures, by name, or by the wall time that they are of.
    """

    what: str
    name: str
    state: str
    says: str
    asked: str
    until: float | None = None
    chain: Sequence[Step] = ()
    facts: Sequence[tuple[str | float, str]] = ()


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""

    @app.get("/why")
    async def why_page(request: Request) -> HTMLResponse:
        sources, query = console.sources, request.query_params
        await sources.fresh()
        run = sources.run(query.get("run", ""))
        wanted = query.get("of", "").strip()
        answers = await _answers(sources, wanted) if wanted else []
        waiting = None if wanted or run is None else await _waiting(run)
        return console.page(request, "why.html", run=run, wanted=wanted, answers=answers, waiting=waiting)


async def _answers(sources: Sources, wanted: str) -> list[Answer]:
    """Return what every source knows by this id."""
    found: list[Answer] = []
    for source in sources.all:
        if source.is_up:
            # One that does not know it, or no longer answers, adds nothing; the page shows which are down.
            with contextlib.suppress(HeadgateError, httpx.HTTPError):
                found += await _asked(source, wanted)
    return found


async def _asked(source: Source, wanted: str) -> list[Answer]:
    match source:
        case RunSource():
            task = await _task_of(source, wanted)
            keys = [key for key in source.said.get("requests", ()) if wanted in {key_of(key), key["model"]}]
            return ([] if task is None else [_of_task(source, task)]) + [_of_key(source, key) for key in keys]
        case ServiceSource(kind="jobqueue"):
            return [await _of_job(source, wanted)]
        case PlacementSource():
            return [_of_placement(source, one) for one in source.said["requests"] if one.request_id == wanted]
        case _:
            return []


async def _task_of(run: RunSource, wanted: str) -> Mapping[str, Any] | None:
    """Return a campaign's answer on the task with this id, or on the next one of `MODEL ENVIRONMENT`."""
    if len(words := wanted.split()) == 2:
        model = words[0] if "@" in words[0] else f"{words[0]}@main"
        found = await run.monitor.next_task(model, words[1], run.name, is_open=False)
        if "gate" in found:  # no task is open: the reason
            return found | {"model": model}
        wanted = str(found["task_id"])
    return await run.monitor.task(quote(wanted, safe=""))


async def _waiting(run: Source) -> Sequence[Mapping[str, Any]] | None:
    """Return the open tasks that are due for longest and do not run; None if the campaign does not say."""
    if not isinstance(run, RunSource) or not run.is_up:
        return None
    try:
        tasks = (await run.monitor.document("/status/tasks", {"limit": str(_ASKED_TASKS)}))["tasks"]
    except (HeadgateError, httpx.HTTPError, KeyError):
        return None
    waiting = sorted((task for task in tasks if task["state"] != "running"), key=lambda task: task["due_at"])
    return waiting[:MOST_WAITING]


def _of_task(run: RunSource, found: Mapping[str, Any]) -> Answer:
    gate, reason = str(found.get("gate") or "none"), str(found.get("reason") or "")
    model = str(found.get("model") or "")
    chain = list(_chain(run.said, model, gate, reason, found.get("until")))
    ahead = int(found.get("ahead") or 0)
    facts = [("gate", gate.replace("_", " "))] + ([("go first", f"{ahead:,} tasks of its group")] if ahead else [])
    if found.get("environment"):
        facts += [("model", model), ("environment", str(found["environment"])), ("number", str(found["sequence"]))]
    return Answer("task", found["task_id"], str(found["state"]), reason, run.name, found.get("until"), chain, facts)


def _chain(said: Mapping[str, Any], model: str, gate: str, reason: str, until: float | None) -> Iterator[Step]:
    """Yield the gates that a task of a model passes; the one that holds it has the campaign's reason."""
    holding = _HOLDS_ELSEWHERE.get(gate)
    steps = list(gates_of(said, model))
    if gate != "none" and holding not in {step.name for step in steps}:
        steps.append(Step(gate.replace("_", " ").capitalize(), reason, "shut", until, holds=True))
    for step in steps:
        yield Step(step.name, reason, "shut", until or step.until, holds=True) if step.name == holding else step


def _of_key(run: Source, key: Mapping[str, Any]) -> Answer:
    step = step_of_key(key, run.said["captured_at"])
    facts = [(name.replace("_", " "), str(key[name])) for name in ("limit", "cap", "breaker", "last_outcome")]
    return Answer("request", key_of(key), step.state, step.says, run.name, step.until, (step,), facts)


async def _of_job(queue: ServiceSource, wanted: str) -> Answer:
    job = await answered(queue.client, f"/v1/jobs/{quote(wanted, safe='')}")
    entries = (await answered(queue.client, f"/v1/jobs/{quote(wanted, safe='')}/history?limit=20"))["entries"]
    lane = next((lane for lane in queue.said["lanes"] if lane["task"] == job["task"]), None)
    is_served = lane is None or lane["is_served"]
    says = {
        "pending": "it waits for a worker" if is_served else "no open policy server serves its task",
        "in_progress": f"worker {job['worker']} has it",
        "done": "its result is kept",
        "dead": job["last_error"] or "it was withdrawn",
    }[job["state"]]
    chain = (
        Step("Policy server", "served" if is_served else "no open server", "open" if is_served else "shut"),
        Step("Worker", f"{queue.said['waiting_claims']} workers ask for jobs", "open" if job["worker"] else "busy"),
    )
    facts = [("team", job["team"]), ("task", job["task"]), ("failures", f"{job['failures']} of {job['max_attempts']}")]
    facts += [(entry["at"] or "", f"{entry['what']} {entry['note']}") for entry in reversed(entries[-8:])]
    return Answer("job", wanted, job["state"], says, queue.address, None, chain, facts)


def _of_placement(source: PlacementSource, one: Occupancy) -> Answer:
    facts = [("pool", one.request.pool), ("priority", f"{one.request.priority:g}"), ("group", one.group_id or "none")]
    facts += [("starts", str(one.epoch)), ("preempted", str(one.preemptions))]
    says = one.stop_reason or one.note or "it waits for a placement group" * (one.stage == "waiting")
    chain = (Step("Placement group", says or "it has one", "open" if one.group_id else "shut"),)
    until = one.not_before + source.said["offset"]
    return Answer("placement", one.request_id, one.stage, says, source.name, until, chain, facts)
