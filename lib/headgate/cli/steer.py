"""`headgate pause|resume|set|retry|withdraw|drain|undo|controls`: steer a campaign while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Annotated, Any, TypeVar

import httpx
from cyclopts import Parameter

from headgate.cli.options import Order, RunChoices
from headgate.cli.output import AsJson, counted, tell, utc_time
from headgate.config import Settings
from headgate.core.audit import process_user
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.environments import registry_of
from headgate.run import controls_at_rest, roster_of, steer_at_rest
from headgate.storage import Journal
from headgate.telemetry import MonitorClient

T = TypeVar("T")


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
    given = {"what": what, "value": _number(what, value), "model": model, "environment": environment}
    return _ordered("set", order, **given)


def retry(*, model: ModelChoice = None, order: Order | None = None) -> int:
    """End the error pause of a model and its provider's cooldown now; without a model, of all."""
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
    settings = choices.load().settings

    async def asked() -> tuple[dict[str, Any], str]:
        async with MonitorClient(settings, choices.url) as monitor:
            if await _answers(monitor, settings, choices.url):
                return await monitor.document("/controls"), monitor.address
        return _in_journal(settings, controls_at_rest)

    document, place = asyncio.run(asked())
    lines = [f"{counted(len(document['controls']), 'control')} in force, of {place}"]
    lines += [f"{control['revision']:>6}  {control['says']}" for control in document["controls"]]
    lines.append("latest changes:" if document["log"] else "nothing was changed yet")
    lines += [f"{one['revision']:>6}  {utc_time(one['at'])}  {one['says']}" for one in document["log"]]
    return tell(document, *lines, as_json=as_json)


def _ordered(verb: str, order: Order | None, **about: Any) -> int:
    order = order or Order()
    answer, place = asyncio.run(_steered(order, {"verb": verb, "reason": order.reason, **about}))
    return tell(answer | {"told": place}, str(answer.get("did") or answer.get("would")), place, as_json=order.as_json)


async def _steered(order: Order, told: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the answer to an order, and who was told: the running campaign, or its journal."""
    settings = order.load().settings
    async with MonitorClient(settings, order.url) as monitor:
        if await _answers(monitor, settings, order.url):
            try:
                place = f"{'asked' if order.dry_run else 'told'}: {monitor.address}"
                return await monitor.steer(told, dry_run=order.dry_run), place
            except httpx.HTTPError as error:
                raise HeadgateError(
                    f"the campaign at {monitor.address} went away before it answered ({type(error).__name__})",
                    next_step="`headgate controls` says whether it has heard it.",
                ) from None
        address = monitor.address
    models = {model.key for model in await _roster(settings)}
    environments = registry_of(settings).names()

    def at_rest(journal: Journal) -> dict[str, Any]:
        known = {"models": models, "environments": environments}
        return steer_at_rest(journal, told, **known, by=process_user(), now=time.time(), dry_run=order.dry_run)

    answer, place = _in_journal(settings, at_rest)
    done = f"nothing is written to {place}" if order.dry_run else f"written to {place}, which every run of it obeys"
    return answer, f"no campaign answers at {address}: {done}"


async def _answers(monitor: MonitorClient, settings: Settings, url: str | None) -> bool:
    """Return whether the campaign that is meant answers.

    Raises:
        InvalidInputError: if another one does, which was not named by its address.
    """
    running = await monitor.campaign()
    if running is not None and url is None and running != settings.campaign:
        raise InvalidInputError(
            f"campaign {running!r} answers at {monitor.address}, not {settings.campaign!r}",
            next_step=f"Name it with --campaign {running}, or give the other's --url.",
        )
    return running is not None


async def _roster(settings: Settings) -> Collection[Any]:
    try:
        return (await roster_of(settings).load()).models
    except HeadgateError:
        return ()  # those that the journal knows were sampled before


def _in_journal(settings: Settings, asked: Callable[[Journal], T]) -> tuple[T, str]:
    """Return what a journal says, and where it is.

    Raises:
        InvalidInputError: if there is none.
    """
    if not Journal.is_there(settings.journal, settings.campaign):
        raise InvalidInputError(
            f"campaign {settings.campaign!r} neither answers nor has a journal in {settings.journal}",
            next_step="Check --campaign, --journal and --url; `headgate run` serves the API with --enable-monitoring.",
        )
    with closing(Journal(settings.journal, settings.campaign)) as journal, journal.told():
        return asked(journal), f"journal {journal.place}"


def _number(what: str, text: str) -> float | int | None:
    if text == "default":
        return None
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise InvalidInputError(f"{what} must be a number, or `default` (got {text[:60]!r})") from None
