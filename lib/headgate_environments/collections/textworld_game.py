"""TextWorldExpress itself, played through the jar of the package textworld-express."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from headgate.core.errors import EnvironmentFailedError
from headgate_environments.collections.textworld_view import View
from headgate_environments.java.process import GameRaisedError, JavaProcess

_FOLD: Final = "train"
_READS: Final = ("cooking_world.json", "twc_objects.folds.json")
_CANNOT: Final = "That cannot be done; nothing came of it."


class TextWorld:
    """One virtual machine in which one game at a time is under way: its games share state. Its calls block."""

    def __init__(self) -> None:
        """Start it; blocks for a second.

        Raises:
            EnvironmentFailedError: if it does not start.
        """
        self._java = JavaProcess(jar_of_game(), reads=_READS)
        try:
            self._game = self._java.call(lambda jvm: jvm.textworldexpress.runtime.PythonInterface())
        except BaseException:
            self.kill()
            raise
        self._last = View("", (), 0.0, is_over=False)

    @property
    def can_be_lent(self) -> bool:
        """Whether its virtual machine has not ended, and nothing that it did raised."""
        return self._java.can_be_lent

    def kill(self) -> None:
        """End its virtual machine."""
        self._java.kill()

    def begin(self, game: str, seed: int) -> tuple[str, View]:
        """Begin a game; return its task and what is seen first."""
        self._last = _view(self._java.call(lambda _: self._made(game, seed, with_solution=False)))
        return self._java.call(lambda _: str(self._game.getTaskDescription())).strip(), self._last

    def step(self, action: str) -> View:
        """Take one of the available actions; one that the game raises at changes nothing, and the model is told so."""
        try:
            self._last = _view(self._java.call(lambda _: str(self._game.stepJSON(action))))
        except GameRaisedError:
            # Otherwise a model could void a sample that goes badly.
            self._last = replace(self._last, said=_CANNOT)
        return self._last

    def solution(self, game: str, seed: int) -> tuple[str, ...]:
        """Return the actions of the package's own solution, which explores as it likes."""
        self._java.call(lambda _: self._made(game, seed, with_solution=True))
        return self._java.texts(lambda _: self._game.getGoldActionSequence())

    def _made(self, game: str, seed: int, *, with_solution: bool) -> str:
        problem = self._game.load(game, "")
        return str(problem or self._game.generateNewGameJSON(seed, _FOLD, with_solution))


def jar_of_game() -> Path:
    """Return where the package, which is installed, has its jar; its data files lie beside it."""
    package = importlib.util.find_spec("textworld_express")
    assert package is not None  # looked for when the environment was made
    assert package.origin is not None
    return Path(package.origin).with_name("textworld-express.jar")


def _view(answer: str) -> View:
    try:
        told = json.loads(answer)
    except ValueError:
        raise EnvironmentFailedError(f"TextWorldExpress answered {answer!r:.200}, which is no view of a game") from None
    return View(
        said=told["observation"].strip(),
        available=tuple(sorted(told["validActions"])),
        score=float(told["score"]),
        is_over=bool(told["tasksuccess"] or told["taskfailure"]),
    )
