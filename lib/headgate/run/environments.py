"""Which environments a campaign samples, how often, and which of them outside workers play."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headgate.config import EVERYWHERE, Settings, meaningless, value_for
from headgate.core import Model
from headgate.core.errors import (
    InvalidSettingError,
    JudgeNeededError,
    SandboxUnavailableError,
    UnknownEnvironmentError,
)
from headgate.environments import (
    SANDBOX,
    Environment,
    JudgedEnvironment,
    Registry,
    registry_of,
    registry_with,
    selected,
)
from headgate.environments.rubric import Rubric, RubricEnvironment

LOCAL: Final = "local"

_log = logging.getLogger("headgate.environments")


def sampled_environments(
    settings: Settings, judge: Model | None = None, registry: Registry | None = None
) -> dict[str, Environment]:
    """Return the environments to sample, by name: those that the settings name, else all except collections'.

    Without a judge, given or in the settings, those that need one are left out. A pattern stands for all that it
    matches. Environments that cannot be used on this machine are left out with a warning unless named one by one.

    Args:
        settings: of the campaign; the AgentGym servers that they name are among the environments.
        judge: reads answers that need judging.
        registry: where environments are looked up; what is installed, and those servers, when None.

    Raises:
        InvalidSettingError: if the settings name a server for something that is no AgentGym environment.
        UnknownEnvironmentError: if one is not installed, or a pattern matches none.
        MissingExtraError: if one that is named needs a package that is not installed.
        EnvironmentFailedError: if one that is named cannot be used, or none that a pattern matches.
        JudgeNeededError: if one that is named needs a judge, and there is none.
    """
    names = settings.environments
    found = usable_environments(names, registry or registry_of(settings))
    if judge is not None or settings.judge_model:
        return found
    refuse_judged({name: one for name, one in found.items() if name in names})
    return {name: one for name, one in found.items() if not one.spec.needs_judge}


def refuse_judged(sampled: Mapping[str, Environment]) -> None:
    """Refuse environments that need a judge.

    Raises:
        JudgeNeededError: if there is one.
    """
    for name, known in sampled.items():
        if known.spec.needs_judge:
            raise JudgeNeededError(f"environment {name!r} needs a judge, and this campaign has none")


def judged_environments(names: Sequence[str], registry: Registry | None = None) -> dict[str, JudgedEnvironment]:
    """Return environments whose answers a judge reads: those that `names` selects, else all in `registry`.

    Raises:
        UnknownEnvironmentError: if one is not installed, or a pattern matches none.
        InvalidSettingError: if one that is named scores answers itself, or none needs a judge.
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
    """Return the environments that `names` selects, else all in `registry`, whether or not they need a judge.

    Raises:
        HeadgateError: if one that is named cannot be used, or none that a pattern matches.
    """
    selection = selected(names, registry)
    for name, error in selection.left_out.items():
        _log.warning("environment %s is left out: %s", name, error)
    return selection.environments


def rubric_environments(
    names: Sequence[str], rubric: Rubric, registry: Registry | None = None
) -> dict[str, RubricEnvironment]:
    """Return environments judged by a rubric, by their new name: those named, else all that need a judge anyway.

    Args:
        names: environments, or patterns such as `textarena:*`.
        rubric: what answers are judged by.
        registry: where environments are looked up; what is installed when None.

    Raises:
        UnknownEnvironmentError: if one is not installed, or a pattern matches none.
        InvalidSettingError: if none is named, and none is installed that needs a judge.
        InvalidNameError: if the names of environment and rubric together are too long.
    """
    registry = registry or registry_with(())
    found = usable_environments(names, registry) if names else judged_environments((), registry)
    made = (RubricEnvironment(each, rubric) for each in found.values())
    return {each.spec.name: each for each in made}


async def lockable_environments(found: dict[str, Environment], names: Sequence[str]) -> dict[str, Environment]:
    """Return those of `found` that can run here: models' programs need the sandbox locks that the settings require.

    Others are left out with a warning, unless `names` lists them one by one. Missing locks that are not required are
    logged as well.

    Raises:
        SandboxUnavailableError: if one that is named cannot be sandboxed.
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
            "Models' programs run without the sandbox's locks %s, as the settings allow: they may disclose whatever "
            "this user can read (%s)",
            ", ".join(SANDBOX.not_held),
            ", ".join(locked_in),
        )
    return found


def outside_executors(settings: Settings, environments: Mapping[str, Environment]) -> dict[str, str]:
    """Return the environments that outside workers play, each with its executor: the setting's, else its own.

    Raises:
        InvalidSettingError: if one of them needs a judge.
    """
    found = {}
    for name, environment in environments.items():
        executor = value_for(settings.executors, name) or environment.spec.executor or LOCAL
        if executor == LOCAL:
            continue
        if environment.spec.needs_judge:
            raise InvalidSettingError(
                f"environment {name!r} needs a judge and cannot be played by outside workers (executor {executor})",
                next_step=f"Write executors {name}={LOCAL}, or leave it out of this campaign.",
            )
        found[name] = executor
    return found


def rates_of(settings: Settings, environments: Mapping[str, Environment]) -> dict[str, float]:
    """Return samples per model and day by environment: the setting, else the environment's own.

    Raises:
        UnknownEnvironmentError: if `rates` names an environment that is not sampled.
    """
    refuse_meaningless("rates", settings.rates, environments)
    rates = {}
    for name, environment in environments.items():
        stated = value_for(settings.rates, name)
        default = environment.spec.daily_rate if settings.daily_rate_per_env is None else settings.daily_rate_per_env
        rates[name] = default if stated is None else stated
    return rates


def refuse_unknown_budgets(settings: Settings, environments: Mapping[str, Environment]) -> None:
    """Refuse budgets for environments that are not sampled: most likely a misspelt name.

    Raises:
        UnknownEnvironmentError: naming the setting and the first such environment.
    """
    for name in ("sample_tokens", "sample_completion_tokens", "sample_time_s"):
        refuse_meaningless(name, getattr(settings, name), environments)


def refuse_meaningless(setting: str, values: Iterable[str], environments: Iterable[str]) -> None:
    """Refuse per-environment values if one names an environment that is not sampled.

    Raises:
        UnknownEnvironmentError: naming the first such environment.
    """
    unknown = meaningless(values, environments)
    if unknown:
        raise UnknownEnvironmentError(
            f"{setting} names {unknown[0]!r}, which is not among the sampled environments",
            next_step=f"Sampled are: {', '.join(sorted(environments))}; {EVERYWHERE} stands for all others.",
        )
