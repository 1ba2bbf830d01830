"""`headgate why`: which gate holds a task, why, and until when."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headgate import storage  # the store comes with polars and DuckDB, which an answer from elsewhere need not wait for
from headgate.cli.live_runs import LiveRuns, live_runs
from headgate.cli.options import JournalChoices, RunUrl
from headgate.cli.output import AsJson, counted, tell, utc_time
from headgate.config import LoadedSettings, Settings
from headgate.core import task_id_of
from headgate.core.errors import InvalidInputError, NotFoundError, StoreError
from headgate.storage import Journal, TaskState, control_words

_TASK_ID: Final = re.compile(r"t-[0-9a-f]{24}\Z")

_JOURNALED: Final = {
    TaskState.OPEN: "it is open in the journal: the next `headgate run` takes it up, unless a campaign that does not "
    "serve the monitoring API holds it",
    TaskState.STARTED: "its episode has begun: it runs in a campaign without a monitoring API, or the next "
    "`headgate run` takes it up",
    TaskState.SPOOLED: "its sample is durable in the journal: the next `headgate run` stores it",
}


def why(
    task: Annotated[str, Parameter(help="Id of a task (t-…), or a model as NAME or NAME@REVISION.")],
    environment: Annotated[str | None, Parameter(help="Environment, when the first word is a model.")] = None,
    sequence: Annotated[
        int | None, Parameter(help="Number of the task; by default the next one of that model and environment.")
    ] = None,
    choices: JournalChoices | None = None,
    *,
    stage: Annotated[str, Parameter(help="Stage of the task.")] = "sample",
    url: RunUrl = None,
    as_json: AsJson = False,
) -> int:
    """Say which gate holds a task, why, and until when.

    Asks the runs that the journal lists, of all its campaigns unless one is named; if none answers, it reads the
    journal and the store. If several campaigns have the task, --json prints a list.
    """
    if environment is None and not _TASK_ID.match(task):
        raise InvalidInputError(
            f"{task!r} is not a task's id (t- and 24 hex digits)",
            next_step="Give an id from the log or the file of events, or MODEL ENVIRONMENT [NUMBER].",
        )
    loaded, about = (choices or JournalChoices()).load(), (task, environment, sequence, stage)
    answers = asyncio.run(_answers(loaded, url, *about))
    lines = [line for answer in answers for line in _lines_of(answer, time.time())]
    return tell(answers[0] if len(answers) == 1 else answers, *lines, as_json=as_json)


def _lines_of(answer: Mapping[str, Any], now: float) -> list[str]:
    """Return an answer as lines for people."""
    lines = [f"{answer['task_id']} is {answer['state']}: {answer['reason']}"]
    if answer["gate"] != "none":
        until = answer["until"]
        left = "" if until is None else f", until {utc_time(until)} (in {max(0.0, until - now):,.0f} s)"
        lines.append(f"gate: {answer['gate']}{left}")
    if answer["ahead"]:
        lines.append(f"{counted(answer['ahead'], 'task')} of its group ahead of it")
    lines.append(f"asked: {answer['asked']}, campaign {answer['campaign']}")
    return lines


async def _answers(
    loaded: LoadedSettings, url: str | None, task: str, environment: str | None, sequence: int | None, stage: str
) -> list[dict[str, Any]]:
    """Return the answers of the campaigns that know the task; raise the errors of the others if none does."""
    found, refused = list[dict[str, Any]](), list[InvalidInputError | NotFoundError]()
    async with live_runs(loaded, url) as runs:
        runs.tell_silent()
        for campaign in runs.campaigns():
            try:
                found.append(await _answer(runs, campaign, task, environment, sequence, stage))
            except (InvalidInputError, NotFoundError) as error:
                refused.append(error)
    if not found:
        of_several = InvalidInputError("; ".join(one.message for one in refused), next_step=refused[0].next_step)
        raise refused[0] if len(refused) == 1 else of_several
    # An id belongs to one campaign; from the store, all campaigns get the same answer.
    return found if environment is not None else sorted(found, key=lambda answer: answer["asked"] == "store")[:1]


async def _answer(
    runs: LiveRuns, campaign: str, task: str, environment: str | None, sequence: int | None, stage: str
) -> dict[str, Any]:
    model, answering = task if "@" in task else f"{task}@main", runs.answering.get(campaign, ())
    if environment is None:
        task_id = task
    elif sequence is not None:
        task_id = task_id_of(model, environment, sequence, stage, campaign)
    elif answering:
        pair = (model, environment, campaign)
        try:
            found, asked = await runs.first(campaign, lambda run: run.next_task(*pair))
        except InvalidInputError:  # no run has an open one: ask when the next falls due
            found, asked = await runs.first(campaign, lambda run: run.next_task(*pair, is_open=False))
        if "gate" in found:
            return _said(found, campaign, asked)
        task_id = str(found["task_id"])
    else:
        raise InvalidInputError(
            f"{runs.why_not(campaign)}, so the next task of a model and environment is not known",
            next_step="Give the task's number as a third word, start the campaign with --enable-monitoring, or "
            "give the --url of its monitoring API.",
        )
    for monitor in answering:
        if (said := await monitor.task(task_id)) is not None:
            return _said(said, campaign, monitor.address)
    return await _at_rest(runs.settings, campaign, task_id, (model, environment) if environment else (None, None))


def _said(said: Mapping[str, Any], campaign: str, asked: str) -> dict[str, Any]:
    """Return a task's state and the gate that holds it; `asked` is the source: an address, `journal` or `store`."""
    told = {name: said.get(name) for name in ("task_id", "state", "gate", "reason", "until")}
    return {"campaign": campaign, **told, "ahead": said.get("ahead") or 0, "asked": asked}


async def _at_rest(
    settings: Settings, campaign: str, task_id: str, pair: tuple[str | None, str | None]
) -> dict[str, Any]:
    """Return what journal and store know of a task that no running campaign has."""
    state, paused = _journaled(settings, campaign, task_id, pair)
    if state is not TaskState.UNKNOWN:
        reason = f"{_JOURNALED[state]}; {paused}" if paused else _JOURNALED[state]
        held = {"state": str(state), "gate": "no_campaign", "reason": reason}
        return _said({"task_id": task_id, **held}, campaign, "journal")
    stored = await _stored(settings, task_id)
    if stored is not None:
        ended = {"state": "stored", "gate": "none", "reason": stored}
        return _said({"task_id": task_id, **ended}, campaign, "store")
    raise InvalidInputError(
        f"task {task_id} is in no running campaign, not in the journal of {campaign}, and not in the store",
        next_step="Check --url, --campaign, --journal and --store; ids depend on the campaign's name.",
    )


def _journaled(
    settings: Settings, campaign: str, task_id: str, pair: tuple[str | None, str | None]
) -> tuple[TaskState, str]:
    """Return the state of a task in the journal, and the operator's pause that holds it; empty if there is none."""
    if not Journal.is_there(settings.journal, campaign):
        return TaskState.UNKNOWN, ""  # a question must not create a journal
    with closing(Journal(settings.journal, campaign)) as journal, journal.told():
        pauses = (control_words(one) for one in journal.controls.latest() if one.pauses(*pair))
        return journal.state_of(task_id), next(pauses, "")


async def _stored(settings: Settings, task_id: str) -> str | None:
    counts = f"task_id in (select task_id from samples where task_id = '{task_id}')"  # noqa: S608 - hex digits
    sql = f"select score, success, error_kind, finished_at, {counts} from stored where task_id = '{task_id}'"  # noqa: S608
    try:
        rows = (await storage.sample_store(settings).query(sql)).rows
    except StoreError:
        return None
    if not rows:
        return None
    score, success, error_kind, finished_at, does_count = rows[0]
    outcome = f"error {error_kind}" if error_kind else f"score {score:g}, {'a success' if success else 'no success'}"
    invalid = "" if does_count else "; it was invalidated and counts no longer"
    return f"its sample is in the store: {outcome}, finished {utc_time(finished_at)}{invalid}"
