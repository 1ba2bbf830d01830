"""`headgate pause|resume|set|retry|withdraw|drain|undo|controls`: steer a campaign while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any

import httpx
from cyclopts import Parameter

from headgate.cli.live_runs import LiveRuns, live_runs
from headgate.cli.options import Order, RunChoices
from headgate.cli.output import AsJson, counted, print_json, say, tell, utc_time
from headgate.config import Settings
from headgate.core.audit import process_user
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.storage import Journal, value_of

ModelChoice = Annotated[str | None, Parameter(name=("--model", "-m"), help="Only this model: NAME or NAME@REVISION.")]
EnvironmentChoice = Annotated[str | None, Parameter(name=("--environment", "-e"), help="Only this environment.")]


def pause(*, model: ModelChoice = None, environment: EnvironmentChoice = None, order: Order | None = None) -> int:
    """Pause a model, an environment, a model in an environment, or the whole run, until it is resumed.

    No further sample falls due or starts, samples in progress finish, and queued ones wait. A pause survives a
    restart.
    """
    return _ordered("pause", order, model=model, environment=environment)


def resume(*, model: ModelChoice = None, environment: EnvironmentChoice = None, order: Order | None = None) -> int:
    """Resume what was paused; name it as for `headgate pause`."""
    return _ordered("resume", order, model=model, environment=environment)


def set_(
    what: Annotated[str, Parameter(help="rate, factor, cap, budget or workers.")],
    value: Annotated[str, Parameter(help="A number, or `default` for the value of the settings and the roster.")],
    *,
    model: ModelChoice = None,
    environment: EnvironmentChoice = None,
    order: Order | None = None,
) -> int:
    """Change a rate, a cap, a budget or the workers of a campaign while it runs.

    `rate` is samples per model and day in an environment, or of one model there; `factor` multiplies the rates of a
    model, an environment, one in the other, or the whole run. `cap` is a model's requests in flight, `budget` its
    tokens in any 24 h, `workers` the episodes in progress of each process.
    """
    return _ordered("set", order, what=what, value=value_of(value, what), model=model, environment=environment)


def retry(*, model: ModelChoice = None, order: Order | None = None) -> int:
    """End the error pause of a model and its provider's cooldown now; without a model, those of all."""
    return _ordered("retry", order, model=model)


def withdraw(*, model: ModelChoice = None, environment: EnvironmentChoice = None, order: Order | None = None) -> int:
    """Withdraw the queued samples. Samples in progress finish, and samples that fall due later are taken."""
    return _ordered("withdraw", order, model=model, environment=environment)


def drain(*, order: Order | None = None) -> int:
    """Finish the samples in progress, then stop the run; queued tasks stay in its journal for the next run."""
    return _ordered("drain", order)


def undo(
    revision: Annotated[int, Parameter(help="Number of the change; `headgate controls` lists them.")],
    *,
    order: Order | None = None,
) -> int:
    """Undo a change, unless a later one changed the same thing."""
    return _ordered("undo", order, revision=revision)


def controls(choices: RunChoices | None = None, *, as_json: AsJson = False) -> int:
    """Show what is paused or set, and the latest changes: by whom, when and why."""
    choices = choices or RunChoices()

    async def asked() -> list[dict[str, Any]]:
        async with live_runs(choices.load(), choices.url) as runs:
            runs.tell_silent()
            return [await _controls(runs, campaign) for campaign in runs.campaigns()]

    documents = asyncio.run(asked())
    if as_json:
        print_json(documents[0] if len(documents) == 1 else documents)
        return 0
    for document in documents:
        place = f"campaign {document['campaign']} at {document['asked']}"
        say(f"{counted(len(document['controls']), 'control')} in force, of {place}")
        for control in document["controls"]:
            say(f"{control['revision']:>6}  {control['says']}")
        say("latest changes:" if document["log"] else "nothing was changed yet")
        for one in document["log"]:
            say(f"{one['revision']:>6}  {utc_time(one['at'])}  {one['says']}")
    return 0


async def _controls(runs: LiveRuns, campaign: str) -> dict[str, Any]:
    if answering := runs.answering.get(campaign):
        document, asked = await answering[0].document("/controls"), answering[0].address
    else:
        from headgate.run import controls_of  # noqa: PLC0415 - not needed for a run that answers

        with _at_rest(runs, campaign) as journal:
            document, asked = controls_of(journal).document(), f"journal {journal.place}"
    return document | {"campaign": campaign, "asked": asked}


def _ordered(verb: str, order: Order | None, **about: Any) -> int:
    order = order or Order()
    answer, place = asyncio.run(_steered(order, {"verb": verb, "reason": order.reason, **about}))
    return tell(answer | {"told": place}, str(answer.get("did") or answer.get("would")), place, as_json=order.as_json)


async def _steered(order: Order, told: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the answer to an order, and its recipient: a run of the campaign, or its journal, which all runs read."""
    async with live_runs(order.load(), order.url) as runs:
        campaign = runs.steered()
        if answering := runs.answering.get(campaign):
            try:  # it writes the change into the journal, which the other runs follow
                answer, at = await runs.first(campaign, lambda monitor: monitor.steer(told, dry_run=order.dry_run))
            except httpx.HTTPError as error:
                raise HeadgateError(
                    f"a run of campaign {campaign} went away before it answered ({type(error).__name__})",
                    next_step="`headgate controls` shows whether it received the order.",
                ) from None
            place = f"{'asked' if order.dry_run else 'told'}: campaign {campaign} at {at}"
            if further := len(answering) - 1 + len(runs.silent.get(campaign, ())):
                place += f"; the order holds for {counted(further, 'further run')} as well"
            return answer | {"campaign": campaign}, place
        from headgate.environments import registry_of  # noqa: PLC0415 - as above
        from headgate.run import steer_at_rest  # noqa: PLC0415 - as above

        models = {model.key for model in await _roster(runs.settings)}
        environments = registry_of(runs.settings).names()

    known = {"models": models, "environments": environments}
    with _at_rest(runs, campaign) as journal:
        obeys = "which every run of it obeys" if journal.is_shared() else "which its next run obeys: none is alive"
        is_idle = told["verb"] == "drain" and not journal.is_shared()  # a run that starts later is not drained
        is_dry = order.dry_run or is_idle
        answer = steer_at_rest(journal, told, **known, by=process_user(), now=time.time(), dry_run=is_dry)
        place = f"journal {journal.place}"
    if is_idle:
        answer["would"] = f"nothing to drain: no run of campaign {campaign} is alive"
    done = f"nothing is written to {place}" if is_dry else f"written to {place}, {obeys}"
    return answer | {"campaign": campaign}, f"{runs.why_not(campaign)}; {done}"


async def _roster(settings: Settings) -> Collection[Any]:
    from headgate.sampling import roster_source  # noqa: PLC0415 - as above

    try:
        return (await roster_source(settings.roster).load()).models
    except HeadgateError:
        return ()  # models in the journal were sampled before


@contextmanager
def _at_rest(runs: LiveRuns, campaign: str) -> Iterator[Journal]:
    """Yield the journal of a campaign none of whose runs answers.

    Raises:
        InvalidInputError: if there is none.
    """
    if not Journal.is_there(runs.settings.journal, campaign):
        raise InvalidInputError(
            f"{runs.why_not(campaign)}, and no journal there",
            next_step="Check --campaign and --journal, or give --url; a run can be asked with --enable-monitoring.",
        )
    with closing(Journal(runs.settings.journal, campaign)) as journal, journal.told():
        yield journal
