"""Steering from the page: a first press shows what would happen, a second one does it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from headgate.console.access import Form, Steering, Viewer, form_of
from headgate.console.asking import RunSource, ServiceSource, answered
from headgate.console.pages import Console
from headgate.console.sources import Source
from headgate.core.audit import record_change
from headgate.core.errors import HeadgateError, InvalidInputError, NotFoundError, some_of
from headgate.run import settable
from headgate.storage import value_of

_log = logging.getLogger("headgate.console")

VERBS: Final = {
    "pause": "Pause",
    "resume": "Resume",
    "set": "Set",
    "retry": "Retry now",
    "withdraw": "Withdraw queued samples",
    "drain": "Drain the run",
}
_LOGGED: Final = 8


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the forms."""

    @app.get("/steer")
    async def steer_form(request: Request) -> HTMLResponse:
        run = _run(console, request.query_params.get("run", ""))
        return _form(console, request, run, Form(request.query_params.multi_items()))

    @app.post("/steer")
    async def steer(request: Request, viewer: Steering) -> HTMLResponse:
        form = await form_of(request, viewer)
        run = _run(console, form.get("run", ""))
        if form.get("run_id", run.monitor.run_id) != run.monitor.run_id:
            raise NotFoundError("another run has this address by now", next_step="Open it from the matrix again.")
        is_sure = form.get("sure") == "yes"
        try:
            order = _order(form)
            # Only what was previewed is done: if anything changed since, the operator is told instead.
            seen = None if is_sure else (await run.monitor.document("/controls"))["revision"]
            said = await run.monitor.steer(order, dry_run=not is_sure, operator=viewer.name)
        except (HeadgateError, httpx.HTTPError) as error:
            return _form(console, request, run, form, error=error)
        if not is_sure:
            return _form(console, request, run, form, preview=said | {"revision": seen})
        await console.sources.ask(run, now=True)
        return _form(console, request, run, form, did=str(said.get("did") or said))

    @app.post("/act")
    async def act(request: Request, viewer: Steering) -> HTMLResponse:
        form = await form_of(request, viewer)
        source = console.sources.get(form.get("kind", ""), form.get("address", ""))
        if source is None:
            raise NotFoundError("the console does not watch this part")
        verb, targets = form.get("verb", ""), form.getlist("target")
        would, did, error, is_sure = "", "", None, form.get("sure") == "yes"
        try:
            would, calls = _calls(source, verb, targets, form)
            did = await _done(source, verb, targets, calls, viewer) if is_sure else ""
        except (HeadgateError, httpx.HTTPError) as failed:
            error = failed
        if is_sure:
            await console.sources.ask(source, now=True)
        return console.page(request, "act.html", source=source, verb=verb, form=form, would=would, did=did, error=error)


def _run(console: Console, address: str) -> RunSource:
    found = console.sources.get("run", address)
    if not isinstance(found, RunSource):
        raise NotFoundError("the console does not watch this campaign", next_step="Open it from the matrix.")
    return found


def _form(console: Console, request: Request, run: RunSource, form: Form, **outcome: Any) -> HTMLResponse:
    """Return the form, with the `preview` of what was pressed, what it `did`, or the `error`."""
    subject = model, environment = form.get("model") or None, form.get("environment") or None
    fits = {"retry": model is not None and environment is None, "drain": subject == (None, None)}
    controls = run.said.get("controls") or {"controls": (), "log": ()}
    in_force, log = (
        [one for one in controls[name] if (one["model"], one["environment"]) == subject] for name in ("controls", "log")
    )
    values = {"preview": None, "did": "", "error": None} | outcome
    return console.page(
        request, "steer.html", run=run, model=model, environment=environment, form=form,
        verbs={verb: words for verb, words in VERBS.items() if fits.get(verb, True)},
        settable=settable(model, environment), in_force=in_force, log=log[:_LOGGED], **values,
    )  # fmt: skip


def _order(form: Form) -> dict[str, Any]:
    """Return what a form orders; the campaign itself checks names and bounds."""
    fields = {name: form.get(name, "") for name in ("verb", "model", "environment", "what", "reason")}
    value = value_of(form.get("value", "").strip() or "default") if fields["verb"] == "set" else None
    return fields | {"value": value, "revision": form.get("revision") or None}


# Job queues and pools: their own API makes the change, and the page says what it will be asked to do.

_Call = tuple[str, object]

_ACTS: Final = {
    ("jobqueue", "withdraw"): ("make {} dead; workers that run them stop", "/v1/jobs/{}/withdraw", ""),
    ("jobqueue", "drain"): ("assign {} no new job", "/v1/resources/{}/drain", "/"),
    ("jobqueue", "open"): ("assign jobs to {} again", "/v1/resources/{}/open", "/"),
    ("elastic", "drain"): ("put {} to sleep, and leave it asleep", "/elastic/v1/workers/{}/drain", ""),
    ("elastic", "wake"): ("wake {}, and leave it awake", "/elastic/v1/workers/{}/wake", ""),
    ("elastic", "unpin"): ("let {} follow the load again", "/elastic/v1/workers/{}/unpin", ""),
}
"""Kind of source and verb -> what it does to a target, path of the request, and characters kept unquoted in it."""


def _calls(source: Source, verb: str, targets: Sequence[str], form: Form) -> tuple[str, list[_Call]]:
    """Return what would happen, in a sentence, and the requests that do it."""
    named, act = some_of(targets, 5), (source.kind, verb)
    if act == ("elastic", "scale"):
        number = value_of(form.get("workers", "").strip() or "default", "workers")
        left = "let the policy decide how many workers are awake"
        says = left if number is None else f"keep {number:g} workers awake, whatever the load"
        return says, [("/elastic/v1/scale", {"workers": number})]
    if not targets:
        raise InvalidInputError("nothing is chosen", next_step="Choose what is meant, then press again.")
    if act == ("jobqueue", "requeue"):
        return f"make {named} pending again", [("/v1/dead-jobs/requeue", {"job_ids": list(targets)})]
    if act not in _ACTS:
        raise InvalidInputError(f"{verb[:40]!r} cannot be done there")
    says, path, kept = _ACTS[act]
    body = {"reason": form.get("reason", "") or "by an operator"} if source.kind == "jobqueue" else {}
    return says.format(named), [(path.format(quote(one, safe=kept)), body) for one in targets]


async def _done(source: Source, verb: str, targets: Sequence[str], calls: Sequence[_Call], viewer: Viewer) -> str:
    assert isinstance(source, ServiceSource)
    for path, body in calls:
        await answered(source.client, path, body)
    record_change(f"{source.kind} {verb}", ", ".join(targets)[:400], who=f"{viewer.name}, by the console")
    _log.info("%s did %s at %s", viewer.name, verb, source.address)
    return f"{len(calls)} of {len(calls)} done" if len(calls) > 1 else "done"
