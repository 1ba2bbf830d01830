"""What can be done with what is in view, read from the text of a conversation: for baselines, which own no game."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core import Message

_PLACE: Final = re.compile(r"(?:room|location) is called the ([a-z ]+)\.")
_DOOR: Final = re.compile(r"A door to the ([a-z ]+) \(that is (open|closed)\)")
_THING: Final = re.compile(
    r"(?:\t|: |, |containing )(?:[Aa]n? |[Tt]he )?(?:substance called )?([A-Za-z][A-Za-z0-9 '-]*?)(?= ?[.,()\n]|$)"
)
_NO_THINGS: Final = ("agent", "air", "nothing", "which is ", "currently ")

_ON_ONE_THING: Final = ("look at", "pick up", "open", "focus on", "activate", "use", "look in", "eat", "read", "mix")


@dataclass(frozen=True, slots=True)
class Sight:
    """A place as the game told it last.

    Attributes:
        things: names of what is there, contents of open containers included.
        doors: the neighbouring places, and whether the door to each is open.
    """

    things: tuple[str, ...]
    doors: Mapping[str, bool]


def random_action(conversation: Sequence[Message], rng: random.Random) -> str:
    """Return any action on something in view, or any way out, as often; having gone somewhere, look around."""
    done = _actions_in(conversation)
    if _has_moved(done):
        return "look around"
    sight = last_sight(conversation)
    if not sight.things or rng.random() < 0.5:
        return rng.choice(["look around", *(_way_to(place, sight, done) for place in sight.doors)])
    first, second = (rng.choice(sight.things) for _ in range(2))
    return rng.choice([*(f"{act} {first}" for act in _ON_ONE_THING), f"move {first} to {second}"])


def greedy_action(conversation: Sequence[Message], rng: random.Random) -> str:
    """Return what a rule of thumb does: take what the task names, put it in the box, or go where one was least."""
    done = _actions_in(conversation)
    if _has_moved(done):
        return "look around"
    sight = last_sight(conversation)
    task = _task_in(conversation)
    for action in _on_named_things(sight, task, done):
        if action not in done:
            return action
    if not sight.doors:
        return random_action(conversation, rng)
    return _way_to(min(sight.doors, key=lambda place: _reluctance(place, task, done)), sight, done)


def last_sight(conversation: Sequence[Message]) -> Sight:
    """Return the place that was described last; an empty one when none was."""
    for message in reversed(conversation):
        found = _PLACE.search(message.content)
        if message.role == "user" and found is not None:
            return _sight_of(message.content[found.end() :])
    return Sight((), {})


def _sight_of(text: str) -> Sight:
    names = dict.fromkeys(_THING.findall(text.partition("You also see:")[0]))
    things = tuple(name for name in names if not name.startswith(_NO_THINGS))
    return Sight(things, {found[1]: found[2] == "open" for found in _DOOR.finditer(text)})


def _on_named_things(sight: Sight, task: str, done: Sequence[str]) -> Iterator[str]:
    """Yield what to do with the things whose every word stands in the task, the boxes last."""
    words = frozenset(re.findall(r"[a-z]+", task.lower()))
    named = [thing for thing in sight.things if words.issuperset(thing.lower().split())]
    for thing in named:
        if not thing.endswith("box"):
            yield f"focus on {thing}"
            yield f"pick up {thing}"
    carried = [action.removeprefix("pick up ") for action in done if action.startswith("pick up ")]
    for box in named:
        if carried and box.endswith("box"):
            yield f"move {carried[-1]} to {box}"


def _reluctance(place: str, task: str, done: Sequence[str]) -> tuple[int, bool]:
    """Return how often one went to `place`, then whether the task does not name it."""
    return done.count(f"go to {place}"), place not in task


def _way_to(place: str, sight: Sight, done: Sequence[str]) -> str:
    opening = f"open door to {place}"
    return f"go to {place}" if sight.doors[place] or opening in done else opening


def _has_moved(done: Sequence[str]) -> bool:
    return bool(done) and done[-1].startswith("go to ")


def _task_in(conversation: Sequence[Message]) -> str:
    return conversation[0].content.rpartition("Your task is to ")[2].partition("\n")[0]


def _actions_in(conversation: Sequence[Message]) -> list[str]:
    return [message.content.rpartition("Action: ")[2] for message in conversation if message.role == "assistant"]
