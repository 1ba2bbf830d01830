"""Which environments a campaign can sample: those that score answers themselves, or with a judge all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.core.errors import InvalidSettingError, JudgeNeededError
from headgate.environments import Environment, JudgedEnvironment, Registry, environment, environments, registry_with


def scoring_environments(names: Sequence[str], registry: Registry | None = None) -> dict[str, Environment]:
    """Return environments that score answers themselves: those named, else all of them in `registry`.

    Args:
        names: environments to return; all when empty.
        registry: where they are looked up; what is installed when None.

    Raises:
        UnknownEnvironmentError: if one is not installed.
        MissingExtraError: if one needs a package that is not installed.
        JudgeNeededError: if one that is named needs a judge.
    """
    known = registry or registry_with(())
    found = {name: known.environment(name) for name in (names or known.names())}
    if names:
        refuse_judged(found)
        return found
    return {name: one for name, one in found.items() if not one.spec.needs_judge}


def judged_environments(names: Sequence[str]) -> dict[str, JudgedEnvironment]:
    """Return environments whose answers a judge reads: those named, else all of them that are installed.

    Raises:
        UnknownEnvironmentError: if one is not installed.
        InvalidSettingError: if one that is named scores answers itself, or none is installed.
    """
    found = {name: environment(name) for name in (names or environments())}
    judged = {name: known for name, known in found.items() if isinstance(known, JudgedEnvironment)}
    others = [name for name in names if name not in judged or not judged[name].spec.needs_judge]
    if others:
        raise InvalidSettingError(
            f"environment {others[0]!r} scores answers itself, without a judge",
            next_step="Run it with `headgate run`, or leave it out here.",
        )
    judged = {name: known for name, known in judged.items() if known.spec.needs_judge}
    if not judged:
        raise InvalidSettingError(
            "no environment is installed whose answers a judge reads",
            next_step="`headgate environments` lists what is installed; docs/how-to/judge.md says how one is written.",
        )
    return judged


def refuse_judged(sampled: Mapping[str, Environment]) -> None:
    """Refuse environments whose answers nobody would judge.

    Raises:
        JudgeNeededError: if there is one.
    """
    for name, known in sampled.items():
        if known.spec.needs_judge:
            raise JudgeNeededError(f"environment {name!r} needs a judge, and this campaign has none")
