"""Which environments a campaign can sample: those that score answers themselves, or with a judge all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headgate.core.errors import InvalidSettingError, JudgeNeededError, SandboxUnavailableError
from headgate.environments import SANDBOX, Environment, JudgedEnvironment, Registry, registry_with, selected

_log = logging.getLogger("headgate.environments")


def scoring_environments(
    names: Sequence[str], registry: Registry | None = None, *, has_judge: bool = False
) -> dict[str, Environment]:
    """Return environments that can be scored: those that names and patterns mean, else all in `registry`.

    Without a judge these are the ones that score answers themselves. What nobody named one by one and what cannot be
    used on this machine is left out, with a warning.

    Args:
        names: environments to return, or patterns such as `reasoning-gym:*`; all but the collections' when empty.
        registry: where they are looked up; what is installed when None.
        has_judge: whether answers that need a judge can be judged.

    Raises:
        UnknownEnvironmentError: if one is not installed, or a pattern matches none.
        MissingExtraError: if one that is named needs a package that is not installed.
        EnvironmentFailedError: if one that is named cannot be used, or none that a pattern matches.
        JudgeNeededError: if one that is named needs a judge, and there is none.
    """
    found = usable_environments(names, registry or registry_with(()))
    if has_judge:
        return found
    refuse_judged({name: one for name, one in found.items() if name in names})
    return {name: one for name, one in found.items() if not one.spec.needs_judge}


async def lockable_environments(found: dict[str, Environment], names: Sequence[str]) -> dict[str, Environment]:
    """Return those of `found` that can run here: programs of models need the locks that the settings require.

    Others are left out with a warning, unless `names` has them one by one. Locks that are missing and not required are
    told of, too.

    Raises:
        SandboxUnavailableError: if one that is named cannot be locked in.
    """
    locked_in = [name for name, one in found.items() if one.spec.runs_programs]
    if not locked_in:
        return found
    try:
        await SANDBOX.check()
    except SandboxUnavailableError as error:
        if not set(locked_in).isdisjoint(names):
            raise
        _log.warning("Left out: %s: %s. %s", ", ".join(locked_in), error.message, error.next_step)
        return {name: one for name, one in found.items() if name not in locked_in}
    if SANDBOX.not_held:
        _log.warning(
            "Programs of models run without the sandbox's locks %s, as the settings allow: what this user can read, "
            "they may tell (%s)",
            ", ".join(SANDBOX.not_held),
            ", ".join(locked_in),
        )
    return found


def judged_environments(names: Sequence[str], registry: Registry | None = None) -> dict[str, JudgedEnvironment]:
    """Return environments whose answers a judge reads: those that names and patterns mean, else all in `registry`.

    Raises:
        UnknownEnvironmentError: if one is not installed, or a pattern matches none.
        InvalidSettingError: if one that is named scores answers itself, or none is left.
    """
    found = usable_environments(names, registry or registry_with(()))
    judged = {name: one for name, one in found.items() if isinstance(one, JudgedEnvironment) and one.spec.needs_judge}
    others = [name for name in names if name in found and name not in judged]
    if others:
        raise InvalidSettingError(
            f"environment {others[0]!r} scores answers itself, without a judge",
            next_step="Run it with `headgate run`, or leave it out here.",
        )
    if not judged:
        raise InvalidSettingError(
            "no environment is installed whose answers a judge reads",
            next_step="`headgate environments` lists what is installed; docs/how-to/judge.md says how one is written.",
        )
    return judged


def usable_environments(names: Sequence[str], registry: Registry) -> dict[str, Environment]:
    """Return the environments that names and patterns mean, else all in `registry`, whoever scores their answers.

    Raises:
        HeadgateError: if one that is named cannot be used, or none that a pattern matches.
    """
    selection = selected(names, registry)
    for name, error in selection.left_out.items():
        _log.warning("environment %s is left out: %s", name, error)
    return selection.environments


def refuse_judged(sampled: Mapping[str, Environment]) -> None:
    """Refuse environments whose answers nobody would judge.

    Raises:
        JudgeNeededError: if there is one.
    """
    for name, known in sampled.items():
        if known.spec.needs_judge:
            raise JudgeNeededError(f"environment {name!r} needs a judge, and this campaign has none")
