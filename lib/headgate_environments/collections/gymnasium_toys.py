"""gymnasium's own toy games as text: how they are described, what their actions are called, how returns are scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_HIGHLIGHTED: Final = re.compile(r"\x1b\[4\dm(.)\x1b\[0m", re.DOTALL)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_TAXI_STOPS: Final = ("R", "G", "Y", "B", "in the taxi")


@dataclass(frozen=True, slots=True)
class Game:
    """How one game of gymnasium is described and scored.

    Attributes:
        rules: the opening message to the model.
        actions: names of the actions, by number; empty if the actions are free text.
        rounds: maximum number of replies.
        score: function of the sum of rewards and of whether the game ended, to [0, 1].
        pass_mark: smallest score of a success.
        told: describes the current state, given the unwrapped environment and the observation.
        thumb: actions that `greedy` repeats.
        chance: mean score of the random baseline, in `GAMES` over tasks 0 to 399; None if not measured.
        solver_rate: success rate of the solver, in `GAMES` over tasks 0 to 99.
    """

    rules: str
    actions: Sequence[str]
    rounds: int
    score: Callable[[float, bool], float]
    told: Callable[[Any, Any], str]
    thumb: Sequence[str] = ()
    pass_mark: float = 1.0
    chance: float | None = None
    solver_rate: float = 0.0


def clamped(total: float, _: bool) -> float:
    """Return the sum of rewards, clamped to [0, 1]."""
    return min(1.0, max(0.0, total))


def drawn(game: Any, observation: Any) -> str:
    """Return the game rendered as text, with the player's place in brackets, or else the bare observation."""
    if game.render_mode != "ansi":
        return str(observation)
    picture = _HIGHLIGHTED.sub(lambda found: f"[{found[1]}]", str(game.render()))
    return _COLOUR.sub("", picture).strip("\n")


def _taxi(game: Any, observation: Any) -> str:
    row, column, passenger, destination = game.decode(observation)
    lines = _COLOUR.sub("", str(game.render())).splitlines()[: len(game.desc)]
    where = f"the passenger is at {_TAXI_STOPS[passenger]}" if passenger < 4 else "the passenger is in the taxi"
    return "\n".join(lines) + (
        f"\nThe taxi is in row {row}, column {column} (both from 0, the wall not counted); {where} and wants to go to "
        f"{_TAXI_STOPS[destination]}."
    )


def _blackjack(_: Any, observation: Any) -> str:
    own, dealer, usable_ace = observation
    ace = "with an ace that counts 11" if usable_ace else "without an ace that counts 11"
    return f"Your cards sum to {own}, {ace}. The dealer shows {dealer}."


def _reached(_: float, has_ended: bool) -> float:
    return float(has_ended)


def _lake(rounds: int, chance: float, solver_rate: float) -> Game:
    return Game(
        rules="Cross the frozen lake from S to G over F without stepping into a hole H. The ice is slippery: you move "
        "as you want in one third of all moves, else to one of the two sides of it. Your place is in brackets.",
        actions=("left", "down", "right", "up"),
        rounds=rounds,
        score=clamped,
        told=drawn,
        thumb=("right", "down"),
        chance=chance,
        solver_rate=solver_rate,
    )


def _cliff(ice: str, chance: float, solver_rate: float) -> Game:
    return Game(
        rules="Walk from x to T. Who steps on the cliff C is put back to the start." + ice,
        actions=("up", "right", "down", "left"),
        rounds=60,
        score=_reached,
        told=drawn,
        thumb=("up", "right"),
        chance=chance,
        solver_rate=solver_rate,
    )


GAMES: Final[Mapping[str, Game]] = {
    "Blackjack-v1": Game(
        rules="Blackjack: get closer to 21 than the dealer without going over it. Aces count 1 or 11, faces 10.",
        actions=("stick", "hit"),
        rounds=21,
        score=lambda total, _: min(1.0, max(0.0, (total + 1) / 2)),
        told=_blackjack,
        thumb=("stick",),
        chance=0.314,
        solver_rate=0.39,
    ),
    "CliffWalking-v1": _cliff("", 0.005, 1.0),
    "CliffWalkingSlippery-v1": _cliff(" The ground is slippery: one move in three goes as you want.", 0.0, 0.53),
    "FrozenLake-v1": _lake(100, 0.015, 0.75),
    "FrozenLake8x8-v1": _lake(100, 0.0, 0.54),
    "Taxi-v4": Game(
        rules="Drive the taxi to the passenger, pick them up, drive to the destination and drop them off. "
        "| is a wall, : is none.",
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
        rounds=40,
        score=_reached,
        told=_taxi,
        thumb=("pickup", "north", "dropoff", "west"),
        chance=0.0025,
        solver_rate=1.0,
    ),
}


def plain_game(actions: int | None) -> Game:
    """Return the description of a game that is not in `GAMES`: its plain observation, with numbered or free actions."""
    how = "The actions are words." if actions is None else f"The actions are the numbers 0 to {actions - 1}."
    return Game(
        rules=f"You play a game, told as it is. {how}",
        actions=() if actions is None else tuple(map(str, range(actions))),
        rounds=60,
        score=clamped,
        told=drawn,
    )


def basic_strategy(observation: Any) -> str:
    """Return the action at blackjack by the well-known basic strategy, without splitting and doubling."""
    own, dealer, usable_ace = observation
    if usable_ace:
        return "hit" if own <= 17 or (own == 18 and dealer in {1, 9, 10}) else "stick"
    if 13 <= own <= 16 or own == 12:
        return "stick" if (4 if own == 12 else 2) <= dealer <= 6 else "hit"
    return "hit" if own <= 11 else "stick"


def best_actions(transitions: Mapping[int, Mapping[int, Any]], discount: float = 0.995) -> dict[int, int]:
    """Return the best action of each state, by value iteration over the transitions `P` of gymnasium's toy games."""
    values = dict.fromkeys(transitions, 0.0)

    def worth(state: int, action: int) -> float:
        return float(
            sum(
                probability * (reward + (0.0 if is_over else discount * values[following]))
                for probability, following, reward, is_over in transitions[state][action]
            )
        )

    for _ in range(1_000):
        change = 0.0
        for state, actions in transitions.items():
            best = max(worth(state, action) for action in actions)
            change = max(change, abs(best - values[state]))
            values[state] = best
        if change < 1e-5:
            break
    return {state: max(actions, key=lambda action: worth(state, action)) for state, actions in transitions.items()}
