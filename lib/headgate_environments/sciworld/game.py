"""ScienceWorld itself, played through the jar in the package scienceworld."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.core import errors
from headgate_environments.java import GameRaisedError, JavaProcess

VARIATIONS: Final = {
    "boil": 30,
    "melt": 30,
    "freeze": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "find-animal": 300,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-shortest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
}
"""Number of variations of each experiment, in ScienceWorld's order.

AgentGym leaves out ScienceWorld's tasks 5-1, 5-2, 9-1, 9-2, 9-3, 10-1 and 10-2 (growing, inclined planes, genetics).
"""

DATA_LENGTH: Final = sum(VARIATIONS.values())

MAX_ROUNDS: Final = 40
"""Replies per episode. Of 69 of ScienceWorld's own solutions, three per experiment, 28 finish within AgentGym's 10
actions, 53 within 30 and 62 within 40; the longest of the others takes 90, and earns part of the score by then."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One task of ScienceWorld."""

    name: str
    variation: int

    def __str__(self) -> str:
        return f"{self.name}, variation {self.variation}"


def experiment_at(index: int) -> Experiment:
    """Return task `index`, modulo the number of tasks.

    First come the variations 0 of all experiments, then all variations 1, and so on. AgentGym lists one experiment
    after the other: in that order, the first days of a campaign would consist of boiling only.
    """
    return _in_order()[index % DATA_LENGTH]


@functools.cache
def _in_order() -> tuple[Experiment, ...]:
    rounds = range(max(VARIATIONS.values()))
    return tuple(Experiment(name, number) for number in rounds for name, count in VARIATIONS.items() if number < count)


_SIMPLIFICATIONS: Final = ""
"""None, as in AgentGym: doors and containers are closed initially, and players walk from room to room."""

_EQUAL_HASHES: Final = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
"""The game lists things in the order of their identity hashes, which every virtual machine draws anew. If all hashes
are equal, its sets keep the order of insertion: the same on every machine."""

_OBJECT_TYPES: Final = "object_type_ids.tsv"
"""File with a number for each kind of object; the game reads it, and rewrites it when it meets an unknown kind."""

_CANNOT: Final = "That cannot be done; nothing came of it."


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an action: the game's reply and score (at most 1; negative if the task has failed for good)."""

    said: str
    score: float
    is_over: bool


class ScienceWorld:
    """A virtual machine that runs one experiment at a time. Its calls block."""

    def __init__(self) -> None:
        """Start the virtual machine; blocks for seconds.

        Raises:
            EnvironmentFailedError: if it does not start, or its tasks differ from those that indices stand for.
        """
        package = importlib.util.find_spec("scienceworld")
        assert package is not None  # checked when the environment was made
        assert package.origin is not None
        jar = Path(package.origin).with_name("scienceworld.jar")
        self._java = JavaProcess(jar, reads=(_OBJECT_TYPES,), options=_EQUAL_HASHES)
        try:
            self._game = self._java.call(lambda jvm: jvm.scienceworld.runtime.pythonapi.PythonInterface())
            # The game draws from Scala's shared generator, which every virtual machine seeds with the time.
            self._random = self._java.call(lambda jvm: getattr(getattr(jvm.scala.util, "Random$"), "MODULE$"))
            self._require_known_tasks()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process id of its virtual machine."""
        return self._java.pid

    @property
    def can_be_lent(self) -> bool:
        """Whether its virtual machine is alive and no call has raised."""
        return self._java.can_be_lent

    def kill(self) -> None:
        """Kill its virtual machine."""
        self._java.kill()

    def begin(self, experiment: Experiment) -> str:
        """Begin an experiment; return the task and the first view. The same experiment runs the same everywhere."""
        self._load(experiment, with_solution=False)
        return self._java.call(lambda _: f"{self._game.getTaskDescription()}\n\n{self._game.step('look around')}")

    def step(self, action: str) -> Outcome:
        """Take one action; if the game does not know it or raises, nothing changes, and the outcome says so."""
        try:
            said = self._java.call(lambda _: str(self._game.step(action)).strip())
        except GameRaisedError:
            # Otherwise a model could void a sample in which it does badly.
            said = _CANNOT
        return self._java.call(lambda _: self._outcome(said))

    def solution(self, experiment: Experiment) -> tuple[str, ...]:
        """Return the actions of ScienceWorld's own solution; takes up to a few seconds."""
        self._load(experiment, with_solution=True)
        return self._java.texts(lambda _: self._game.getGoldActionSequence())

    def _outcome(self, said: str) -> Outcome:
        score = float(self._game.getScore())
        return Outcome(said, score, score < 0 or score >= 1 or bool(self._game.getCompleted()))

    def _load(self, experiment: Experiment, *, with_solution: bool) -> None:
        def loaded(_: Any) -> str:
            self._random.setSeed(0)
            self._game.load(experiment.name, experiment.variation, _SIMPLIFICATIONS, with_solution)
            return str(self._game.errorStr())

        if problem := self._java.call(loaded):
            raise errors.EnvironmentFailedError(f"ScienceWorld cannot make {experiment}: {problem:.200}")

    def _require_known_tasks(self) -> None:
        found = self._java.call(lambda _: {name: self._game.getTaskMaxVariations(name) for name in VARIATIONS})
        if found != VARIATIONS:
            version = importlib.metadata.version("scienceworld")
            raise errors.EnvironmentFailedError(
                f"scienceworld {version} has other tasks than those that indices stand for",
                next_step="Install the version that Headgate was made for: pip install 'headgate[sciworld]'.",
            )
