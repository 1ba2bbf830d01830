"""`headgate pause|resume|set|retry|withdraw|drain|undo|controls`: steer a campaign while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import httpx
from cyclopts import Parameter

from headgate.cli.options import RunChoices
from headgate.cli.output import AsJson, counted, print_json, say
from headgate.config import Settings
from headgate.core.audit import process_user
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.environments import registry_of
from headgate.run import controls_at_rest, roster_of, steer_at_rest
from headgate.storage import Journal
from headgate.telemetry import MonitorClient

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What every order may carry."""

    reason: Annotated[str, Parameter(help="Reason, kept with the change and shown to others.")] = ""
    dry_run: Annotated[bool, Parameter(negative="", help="Say what would be done, and change nothing.")] = False


ModelChoice = Annotated[str | None, Parameter(name=("--model", "-m"), help="Only this model: NAME or NAME@REVISION.")]
EnvironmentChoice = Annotated[str | None, Parameter(name=("--environment", "-e"), help="Only this environment.")]


def pause(
    *,
    model: ModelChoice = None,
    environment: EnvironmentChoice = None,
    note: Note | None = None,
    choices: RunChoices | None = None,
    as_json: AsJson = False,
) -> int:
    """Pause a model, an environment, a model in an environment, or the whole run, until it is resumed.

    No further sample falls due or starts, samples in progress finish, and queued ones wait. A pause survives a
    restart.
    """
    return _ordered("pause", note, choices, model=model, environment=environment, as_json=as_json)


def resume(
    *,
    model: ModelChoice = None,
    environment: EnvironmentChoice = None,
    note: Note | None = None,
    choices: RunChoices | None = None,
    as_json: AsJson = False,
) -> int:
    """Resume what was paused; name it as for `headgate pause`."""
    return _ordered("resume", note, choices, model=model, environment=environment, as_json=as_json)


def set_(
    what: Annotated[str, Parameter(help="rate, factor, cap, budget or workers.")],
    value: Annotated[str, Parameter(help="A number, or `default` for the value of the settings and the roster.")],
    *,
    model: ModelChoice = None,
    environment: EnvironmentChoice = None,
    note: Note | None = None,
    choices: RunChoices | None = None,
    as_json: AsJson = False,
) -> int:
    """Change a rate, a cap, a budget or the workers of a campaign while it runs.

    `rate` is samples per model and day in an environment, or of one model there; `factor` multiplies the rates of a
    model, an environment, one in the other, or the whole run. `cap` is a model's requests in flight, `budget` its
    tokens in any 24 h, `workers` the episodes in progress of each process.
    """
    given = {"what": what, "value": _number(what, value), "model": model, "environment": environment}
    return _ordered("set", note, choices, **given, as_json=as_json)


def retry(
    *,
    model: ModelChoice = None,
    note: Note | None = None,
    choices: RunChoices | None = None,
    as_json: AsJson = False,
) -> int:
    """End the error pause of a model and its provider's cooldown now; without a model, of all."""
    return _ordered("retry", note, choices, model=model, as_json=as_json)


def withdraw(
    *,
    model: ModelChoice = None,
    environment: EnvironmentChoice = None,
    note: Note | None = None,
    choices: RunChoices | None = None,
    as_json: AsJson = False,
) -> int:
    """Withdraw the queued samples. Samples in progress finish, and samples that fall due later are taken."""
    return _ordered("withdraw", note, choices, model=model, environment=environment, as_json=as_json)


def drain(*, note: Note | None = None, choices: RunChoices | None = None, as_json: AsJson = False) -> int:
    """Finish the samples in progress, then stop the run; queued tasks stay in its journal for the next run."""
    return _ordered("drain", note, choices, as_json=as_json)


def undo(
    revision: Annotated[int, Parameter(help="Number of the change; `headgate controls` lists them.")],
    *,
    note: Note | None = None,
    choices: RunChoices | None = None,
    as_json: AsJson = False,
) -> int:
    """Undo a change, unless a later one changed the same thing."""
    return _ordered("undo", note, choices, revision=revision, as_json=as_json)


def controls(choices: RunChoices | None = None, *, as_json: AsJson = False) -> int:
    """Show what is paused or set, and the latest changes: by whom, when and why."""
    choices = choices or RunChoices()
    settings = choices.load().settings

    async def asked() -> tuple[dict[str, Any], str]:
        async with MonitorClient(settings, choices.url) as monitor:
            if await _answers(monitor, settings, choices.url):
                return await monitor.controls(), monitor.address
        return _in_journal(settings, controls_at_rest)

    document, place = asyncio.run(asked())
    if as_json:
        print_json(document)
        return 0
    say(f"{counted(len(document['controls']), 'control')} in force, of {place}")
    for control in document["controls"]:
        say(f"{control['revision']:>6}  {control['says']}")
    say("latest changes:" if document["log"] else "nothing was changed yet")
    for change in document["log"]:
        at = datetime.fromtimestamp(change["at"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        say(f"{change['revision']:>6}  {at}  {change['says']}")
    return 0


def _ordered(verb: str, note: Note | None, choices: RunChoices | None, *, as_json: bool, **order: Any) -> int:
    note, choices = note or Note(), choices or RunChoices()
    settings = choices.load().settings
    answer, place = asyncio.run(_steered(settings, choices.url, {"verb": verb, "reason": note.reason, **order}, note))
    if as_json:
        print_json(answer | {"told": place})
    else:
        say(str(answer.get("did") or answer.get("would")))
        say(place)
    return 0


async def _steered(
    settings: Settings, url: str | None, order: dict[str, Any], note: Note
) -> tuple[dict[str, Any], str]:
    """Return the answer to an order, and who was told: the running campaign, or its journal."""
    async with MonitorClient(settings, url) as monitor:
        if await _answers(monitor, settings, url):
            try:
                place = f"{'asked' if note.dry_run else 'told'}: {monitor.address}"
                return await monitor.steer(**order, dry_run=note.dry_run), place
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
        return steer_at_rest(journal, order, **known, by=process_user(), now=time.time(), dry_run=note.dry_run)

    answer, place = _in_journal(settings, at_rest)
    done = f"nothing is written to {place}" if note.dry_run else f"written to {place}, which every run of it obeys"
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
