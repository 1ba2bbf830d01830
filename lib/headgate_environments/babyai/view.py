"""The view of an agent in BabyAI as text, and its possible actions, each a name for a series of single steps."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

VIEW_SIZE: Final = 7
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
"""Single steps, with minigrid's numbers."""

Cell = tuple[int, int]
"""A place relative to the agent: cells ahead, cells to the right."""

Pose = tuple[int, int, int]
"""A cell and a direction: 0 as now, 1 after a turn to the right, and so on."""

_KINDS: Final = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
_COLOURS: Final = ("red", "green", "blue", "purple", "yellow", "grey")
_DOOR_STATES: Final = ("open", "closed", "locked")
_AHEAD: Final = ((1, 0), (0, 1), (-1, 0), (0, -1))
_HERE: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Thing:
    """An object or door in view, with the name that actions use: `red ball 1` is the nearest red ball.

    Attributes:
        kind: `door`, `key`, `ball`, `box` or `goal`.
        colour: one of six.
        state: for a door, `open`, `closed` or `locked`; else empty.
        number: rank among the things with the same plain name, the nearest being 1.
        cell: where it is.
    """

    kind: str
    colour: str
    state: str
    number: int
    cell: Cell

    @property
    def name(self) -> str:
        """Its name in actions."""
        return f"{self.plain_name} {self.number}"

    @property
    def plain_name(self) -> str:
        """Its name without the number."""
        return " ".join(filter(None, (self.colour, self.state, self.kind)))


class View:
    """One observation: things, free cells, and the carried object. Immutable; created after each action."""

    def __init__(self, image: Any, carrying: tuple[str, str] | None) -> None:
        self._cells = {
            (VIEW_SIZE - 1 - row, column - VIEW_SIZE // 2): tuple(map(int, image[column, row]))
            for column in range(VIEW_SIZE)
            for row in range(VIEW_SIZE)
        }
        self._cells[_HERE] = (_KINDS.index("empty"), 0, 0)  # minigrid draws the carried object here
        self.carrying = carrying

    @cached_property
    def things(self) -> tuple[Thing, ...]:
        """All things in view, nearest first."""
        numbers: Counter[tuple[int, ...]] = Counter()
        found = []
        for cell in sorted(self._cells, key=lambda cell: (abs(cell[0]) + abs(cell[1]), cell)):
            kind = _KINDS[self._cells[cell][0]]
            if kind in ("door", "key", "ball", "box", "goal"):
                numbers[self._cells[cell]] += 1
                found.append(self._thing(cell, kind, numbers[self._cells[cell]]))
        return tuple(found)

    @cached_property
    def actions(self) -> dict[str, tuple[int, ...]]:
        """The available actions: name -> single steps."""
        available: dict[str, tuple[int, ...]] = {"turn left": (LEFT,), "turn right": (RIGHT,)}
        if self._is_free((1, 0)):
            available["move forward"] = (FORWARD,)
        for thing in self.things:
            available.update(self._actions_on(thing))
        if self.carrying and self._kind((1, 0)) == "empty":
            available["drop"] = (DROP,)
        if self._kind((1, 0)) in ("door", "box"):
            available["toggle"] = (TOGGLE,)
        return available

    def text(self) -> str:
        """Return the observation, which ends with the available actions as a JSON list."""
        seen = "; ".join(f"{thing.name} ({_whereabouts(thing.cell)})" for thing in self.things)
        load = f"You are carrying a {' '.join(self.carrying)}." if self.carrying else "You are not carrying anything."
        sight = f"You can see: {seen}." if seen else "You see no objects."
        return f"{sight} {self._barrier()}{load}\nAvailable actions: {json.dumps(list(self.actions))}"

    def _thing(self, cell: Cell, kind: str, number: int) -> Thing:
        _, colour, state = self._cells[cell]
        return Thing(kind, _COLOURS[colour], _DOOR_STATES[state] if kind == "door" else "", number, cell)

    def _actions_on(self, thing: Thing) -> Iterator[tuple[str, tuple[int, ...]]]:
        facing = self._steps_to_face(thing.cell)
        if facing is None:
            return
        # A single step without effect makes the mission check whether the agent already stands there.
        yield f"go to {thing.name}", facing or (DONE,)
        if thing.kind in ("key", "ball", "box") and self.carrying is None:
            yield f"pick up {thing.name}", (*facing, PICK_UP)
        if thing.state == "open":
            yield f"go through {thing.name}", (*facing, FORWARD, FORWARD)
        elif thing.state == "closed" or (thing.state == "locked" and self.carrying == (thing.colour, "key")):
            yield f"toggle and go through {thing.name}", (*facing, TOGGLE, FORWARD, FORWARD)

    def _steps_to_face(self, target: Cell) -> tuple[int, ...] | None:
        return next((steps for pose, steps in self._reachable.items() if _front(pose) == target), None)

    @cached_property
    def _reachable(self) -> dict[Pose, tuple[int, ...]]:
        """Every pose that can be reached through cells in view, with the shortest steps to it, nearest first."""
        start: Pose = (0, 0, 0)
        found: dict[Pose, tuple[int, ...]] = {start: ()}
        waiting = deque([start])
        while waiting:
            pose = waiting.popleft()
            for step in (FORWARD, LEFT, RIGHT):
                reached = moved(pose, step)
                if reached not in found and self._is_free(reached[:2]):
                    found[reached] = (*found[pose], step)
                    waiting.append(reached)
        return found

    def _kind(self, cell: Cell) -> str:
        return _KINDS[self._cells.get(cell, (0, 0, 0))[0]]

    def _is_free(self, cell: Cell) -> bool:
        kind = self._kind(cell)
        return kind in ("empty", "floor", "goal") or (kind == "door" and self._cells[cell][2] == 0)

    def _barrier(self) -> str:
        for distance in range(1, VIEW_SIZE):
            if self._kind((distance, 0)) == "wall":
                return f"There is a wall {_steps(distance)} ahead. "
        return ""


def moved(pose: Pose, step: int) -> Pose:
    """Return the pose after a turn or a step forward on free ground."""
    ahead, right, direction = pose
    if step == LEFT:
        return ahead, right, (direction - 1) % 4
    if step == RIGHT:
        return ahead, right, (direction + 1) % 4
    return *_front(pose), direction


def _front(pose: Pose) -> Cell:
    ahead, right, direction = pose
    return ahead + _AHEAD[direction][0], right + _AHEAD[direction][1]


def _whereabouts(cell: Cell) -> str:
    ahead, right = cell
    parts = [f"{_steps(ahead)} ahead"] if ahead else []
    if right:
        parts.append(f"{_steps(abs(right))} to the {'right' if right > 0 else 'left'}")
    return ", ".join(parts)


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
