"""TextWorldExpress itself, played through the jar in the package textworld-express."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError
from headgate.environments.answers import ONE_ACTION, only_action
from headgate_environments.java import GameRaisedError, JavaProcess
from headgate_environments.text_game import actions_in

_VERBS: Final = ("take", "open", "move")
"""In order of preference; verbs that reveal nothing new come last."""

_CHORES: Final = frozenset({"task", "inventory", "look around"})
_HERE: Final = re.compile(r"^You are in the ([a-z ]+)\.", re.MULTILINE)
_BESIDE: Final = re.compile(r"To the ([A-Z][a-z]+) you see the ([a-z ]+)\.")
_SOUGHT: Final = re.compile(r"(?:find|take) the ([a-z]+)")

AVAILABLE: Final = "Available actions: "

_ACTION_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class View:
    """The state that the game reports after a step."""

    said: str
    available: tuple[str, ...]
    score: float
    is_over: bool

    def text(self) -> str:
        """Return the view as text for the model."""
        return f"{self.said}\n{AVAILABLE}{json.dumps(self.available)}"


def told_actions(text: str) -> list[str]:
    """Return the actions listed as available in the text of a view, or in a text that ends with one."""
    actions: list[str] = json.loads(text.rpartition(AVAILABLE)[2])
    return actions


def chosen_action(reply: str, available: Sequence[str]) -> tuple[str | None, str]:
    """Return the available action that `reply` names and "", or None and a message to the model.

    The action follows the only `Action:`; a reply that is just an action is accepted, too. Case and markup are ignored.
    """
    named = only_action(reply)
    if named is None:
        return None, f"{ONE_ACTION}\n"
    wanted = " ".join(named[:_ACTION_CHARS].lower().split()).strip(" .!`*'\"")
    for action in available:
        if action.lower() == wanted:
            return action, ""
    return None, f"That is not an action that you can take now: {wanted!r:.80}. Nothing was done.\n"


def likeliest(conversation: Sequence[Message]) -> str:
    """Return an action that the view names word for word, else one that reads new text, else the rarest one so far.

    Among equally rare actions, those on the thing that the task seeks, and those that put a thing where its name says,
    come first; then taking, opening, and moving to the least visited place. If the task seeks one thing, taking others
    comes last.
    """
    opening, last = conversation[0].content, conversation[-1].content
    task = opening.rpartition("\nTask: ")[2].partition("\n")[0]
    view = last.rpartition(AVAILABLE)[0].rpartition("\nTask: ")[2]
    done = actions_in(conversation)
    has_taken = bool(done) and done[-1].startswith("take")
    words = _words(f"{task} {view}")
    sought = _SOUGHT.search(task)
    visits = _visits(conversation)

    def order(action: str) -> tuple[bool, bool, int, bool, int, int]:
        verb, _, rest = action.partition(" ")
        is_named = action in view and action not in _CHORES
        is_new_text = verb == "read" and (action not in done or has_taken)
        is_fitting = _fits(action) or (sought is not None and sought[1] in action)
        times = visits[rest] if verb == "move" and rest in visits else done.count(action)
        is_junk = sought is not None and verb == "take"
        rank = _VERBS.index(verb) if verb in _VERBS and not is_junk else len(_VERBS)
        return not is_named, not is_new_text, times, not is_fitting, rank, -len(words & _words(action))

    return min(told_actions(last), key=order)


def _fits(action: str) -> bool:
    """Return whether an action puts a thing into a place with a matching name: shoes into a shoe cabinet."""
    thing, _, place = action.removeprefix("put ").partition(" in ")
    return any(word.startswith(other) for word in thing.split() for other in place.split())


def _visits(conversation: Sequence[Message]) -> dict[str, int]:
    """Return the number of visits to each neighbour of the last described place, by direction."""
    told = [message.content for message in conversation if message.role == "user" and _HERE.search(message.content)]
    been = Counter(found[1] for text in told for found in _HERE.finditer(text))
    return {found[1].lower(): been[found[2]] for found in _BESIDE.finditer(told[-1])} if told else {}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text.lower()))


_FOLD: Final = "train"
_READS: Final = ("cooking_world.json", "twc_objects.folds.json")
_CANNOT: Final = "That cannot be done; nothing came of it."


class TextWorld:
    """A virtual machine that runs one game at a time, since its games share state. Its calls block."""

    def __init__(self) -> None:
        """Start the virtual machine; blocks for a second.

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
        """Whether its virtual machine is alive and no call has raised."""
        return self._java.can_be_lent

    def kill(self) -> None:
        """Kill its virtual machine."""
        self._java.kill()

    def begin(self, game: str, seed: int) -> tuple[str, View]:
        """Begin a game; return its task and the first view."""
        self._last = _view(self._java.call(lambda _: self._made(game, seed, with_solution=False)))
        return self._java.call(lambda _: str(self._game.getTaskDescription())).strip(), self._last

    def step(self, action: str) -> View:
        """Take one of the available actions; if the game raises, nothing changes, and the view says so."""
        try:
            self._last = _view(self._java.call(lambda _: str(self._game.stepJSON(action))))
        except GameRaisedError:
            # Otherwise a model could void a sample in which it does badly.
            self._last = replace(self._last, said=_CANNOT)
        return self._last

    def solution(self, game: str, seed: int) -> tuple[str, ...]:
        """Return the actions of the package's own solution, which also explores."""
        self._java.call(lambda _: self._made(game, seed, with_solution=True))
        return self._java.texts(lambda _: self._game.getGoldActionSequence())

    def _made(self, game: str, seed: int, *, with_solution: bool) -> str:
        problem = self._game.load(game, "")
        return str(problem or self._game.generateNewGameJSON(seed, _FOLD, with_solution))


def jar_of_game() -> Path:
    """Return the path of the installed package's jar; its data files are in the same folder."""
    package = importlib.util.find_spec("textworld_express")
    assert package is not None  # checked when the environment was made
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
