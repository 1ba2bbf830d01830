"""`verifiers:<module>`: environment modules written for verifiers, with their own rollouts and rubrics."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headgate.core.errors import EnvironmentFailedError
from headgate.environments import EnvironmentSpec, Score
from headgate_environments.collections.members import OwnDice, member_of, required, unknown
from headgate_environments.collections.resumed import MAX_ROUNDS, REPLY_CHARS, Ask, AskedEnvironment

PREFIX: Final = "verifiers"
_FEATURE: Final = "collection 'verifiers'"
_SEED: Final = 0
_REQUIRES: Final = re.compile(r"verifiers\b(?![-._])", re.IGNORECASE)
_SERVICES: Final = frozenset({"SandboxEnv", "SandboxMixin", "BrowserEnv", "OpenEnvEnv"})
"""Classes of environments that run in a remote service's sandboxes."""


class VerifierTasks:
    """The rows of one verifiers environment, played by its own rollout and scored by its own rubric."""

    def __init__(self, name: str, environment: Any, rows: Any) -> None:
        self._name = name
        self._environment = environment
        self._rows = rows

    async def play(self, index: int, ask: Ask) -> Score:
        """Roll out row `index`, then score it with the rubric.

        Raises:
            EnvironmentFailedError: if the rollout fails, or the rubric does not give a finite number.
        """
        client = required("headgate_environments.collections.verifier_client", _FEATURE, PREFIX).AskingClient(ask)
        state = await self._environment.rollout(dict(self._rows[index]), client, "headgate")
        if state.get("error") is not None:
            error = state["error"]
            raise EnvironmentFailedError(f"{self._name!r} failed: {type(error).__name__}: {error or error.__cause__}")
        await self._environment.rubric.score_rollout(state)
        await self._environment.rubric.cleanup(state)
        reward = float(state["reward"])
        if not math.isfinite(reward):
            raise EnvironmentFailedError(f"the rubric of {self._name!r} gives {reward}, which is no score")
        clamped = min(1.0, max(0.0, reward))
        return Score(clamped, success=clamped >= 1.0, why=f"the rubric gives {reward:g}")

    def target(self, index: int) -> str:
        """Return the answer in row `index`; empty if it has none."""
        return str(self._rows[index].get("answer") or "")


class VerifiersCollection:
    """Installed modules with `load_environment`."""

    prefix = PREFIX
    summary = "Environments written for verifiers, by the name of their installed module"
    extra = PREFIX

    def names(self) -> tuple[str, ...]:
        """Return the names of installed packages that depend on verifiers and define `load_environment`, sorted."""
        required("verifiers", _FEATURE, PREFIX)
        return tuple(sorted({f"{PREFIX}:{module}" for module in _dependants() if _defines_environment(module)}))

    def environment(self, name: str) -> AskedEnvironment:
        """Make the environment `name` and load its data."""
        member = member_of(name, PREFIX)
        utils = required("verifiers.utils.env_utils", _FEATURE, PREFIX)
        module = utils.env_module_name(member)
        if not module.isidentifier() or importlib.util.find_spec(module) is None:
            raise unknown(name, self.names(), why=f"no module {module!r} is installed")
        try:
            with OwnDice(_SEED).thrown():  # so that rows shuffled without a seed are the same everywhere
                loaded = utils.load_environment(member)
                rows = loaded.get_eval_dataset()
        except Exception as error:
            raise EnvironmentFailedError(
                f"environment {name!r} cannot be loaded: {type(error).__name__}: {error}",
                next_step=f"Try it alone: python -c \"import verifiers; verifiers.load_environment('{member}')\".",
            ) from error
        _check(name, loaded, rows)
        return AskedEnvironment(_spec(name, loaded, rows), VerifierTasks(name, loaded, rows))


def verifier_tasks() -> VerifiersCollection:
    """Return the collection `verifiers`."""
    return VerifiersCollection()


def _dependants() -> Iterator[str]:
    for distribution in importlib.metadata.distributions():
        if any(_REQUIRES.match(requirement) for requirement in distribution.requires or ()):
            yield distribution.name.replace("-", "_")


def _defines_environment(module: str) -> bool:
    """Decide from the source, without importing the module, which could take long and do anything."""
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return False
    return "load_environment" in Path(spec.origin).read_text(errors="replace")


def _check(name: str, loaded: Any, rows: Any) -> None:
    """Refuse an environment that a text episode with one model cannot play."""
    rubrics = [loaded.rubric, *getattr(loaded.rubric, "rubrics", ())]
    kinds = {kind.__name__ for one in (loaded, *rubrics) for kind in type(one).__mro__}
    if "JudgeRubric" in kinds:
        raise EnvironmentFailedError(
            f"environment {name!r} asks a judge model, which would be neither admitted nor paced",
            next_step="Give it a rubric of rules, or write an environment with needs_judge for `headgate judge`.",
        )
    if kinds & _SERVICES:
        raise EnvironmentFailedError(
            f"environment {name!r} runs in the sandbox of a service", next_step="Leave it out of the campaign."
        )
    if "MultiTurnEnv" not in kinds or loaded.tool_defs or any(rubric.has_group_rewards for rubric in rubrics):
        raise EnvironmentFailedError(
            f"environment {name!r} needs tools, rewards of a group, or another loop than that of MultiTurnEnv",
            next_step="Use an environment of SingleTurnEnv or MultiTurnEnv with a rubric for single rollouts.",
        )
    if not len(rows):
        raise EnvironmentFailedError(f"environment {name!r} has no rows", next_step="Give it a dataset.")


def _spec(name: str, loaded: Any, rows: Any) -> EnvironmentSpec:
    if not 0 < loaded.max_turns <= MAX_ROUNDS:
        loaded.max_turns = MAX_ROUNDS
    return EnvironmentSpec(
        name=name,
        summary=f"{len(rows)} rows of the verifiers environment {name.partition(':')[2]}, scored by its rubric",
        daily_rate=100.0,
        data_length=len(rows),
        max_rounds=loaded.max_turns,
        reply_chars=REPLY_CHARS,
        licence="that of its package",
        source=f"verifiers.load_environment({name.partition(':')[2]!r})",
        solver_rate=0.0,
    )
