"""Which games of textarena are played, what moves they know, and what chance scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

CHANCE: Final[Mapping[str, float]] = {
    "Briscola-v0": 0.35,
    "Chopsticks-v0": 0.45,
    "Chopsticks-v0-long": 0.6,
    "Chopsticks-v0-medium": 0.45,
    "ConnectFour-v0": 0.35,
    "ConnectFour-v0-blind": 0.45,
    "ConnectFour-v0-large": 0.55,
    "FifteenPuzzle-v0": 0.0,
    "FrozenLake-v0": 0.05,
    "FrozenLake-v0-hardcore": 0.0,
    "FrozenLake-v0-random": 0.0,
    "GuessTheNumber-v0": 0.5,
    "GuessTheNumber-v0-hardcore": 0.15,
    "KuhnPoker-v0": 0.55,
    "KuhnPoker-v0-long": 0.35,
    "KuhnPoker-v0-medium": 0.35,
    "KuhnPoker-v0-short": 0.5,
    "LightsOut-v0": 0.0,
    "Mastermind-v0": 0.05,
    "Nim-v0": 0.6,
    "Nim-v0-large": 0.4,
    "Nim-v0-medium": 0.4,
    "PigDice-v0": 0.5,
    "PigDice-v0-50": 0.35,
    "PigDice-v0-short": 0.4,
    "Secretary-v0": 0.2,
    "Secretary-v0-long": 0.1,
    "SimpleTak-v0": 0.55,
    "SimpleTak-v0-large": 0.625,
    "SimpleTak-v0-medium": 0.475,
    "Sudoku-v0": 0.2,
    "Sudoku-v0-easy": 0.1,
}
"""Mean over tasks 0 to 19, drawing from the moves that the game takes. The other games are not measured."""

_BRACKETS: Final = re.compile(r"\[[^\[\]\n]{1,20}\]")
_LISTED: Final = re.compile(r"(?:available|valid) (?:moves|actions)[^\n]*", re.IGNORECASE)

Moves = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class ArenaGame:
    """One game of textarena.

    Attributes:
        players: 1 or 2.
        moves: candidates in what was shown last; those that the game refuses are tried on a copy and left out.
        is_fixed: whether every index is the same task.
    """

    players: int
    moves: Moves
    is_fixed: bool = False


def listed(shown: str) -> list[str]:
    """Return the moves that a game lists itself, the last list of `shown`."""
    lists = _LISTED.findall(shown)
    return _BRACKETS.findall(lists[-1]) if lists else []


def _of(template: str, *choices: Sequence[object]) -> Moves:
    moves = tuple(template.format(*chosen) for chosen in product(*choices))
    return lambda _: moves


def _either(*moves: Moves) -> Moves:
    return lambda shown: [move for one in moves for move in one(shown)]


_STEPS: Final = _of("[{}]", ("up", "down", "left", "right"))
_CELLS: Final = _of("[{} {}]", range(10), range(10))
_DISKS: Final = _of("[{} {}]", "ABC", "ABC")
_PIECES: Final = _either(_of("[attack {} {}]", range(2), range(2)), _of("[split {} {}]", range(5), range(5)))


def _variants(game: str, *suffixes: str) -> Iterator[str]:
    yield from (f"{game}-v0{suffix}" for suffix in ("", *suffixes))


def _entries() -> Iterator[tuple[str, ArenaGame]]:
    single: tuple[tuple[Iterator[str], Moves, bool], ...] = (
        (_variants("FifteenPuzzle"), _STEPS, False),
        (_variants("FrozenLake", "-random", "-hardcore"), _STEPS, False),
        (_variants("GuessTheNumber", "-hardcore"), _of("[{}]", range(1, 51)), False),
        (_variants("LightsOut"), _CELLS, False),
        (_variants("Mastermind"), _of("[{} {} {} {}]", *[range(1, 7)] * 4), False),
        (_variants("Secretary", "-long"), _of("[{}]", ("accept", "continue")), False),
        (_variants("Sokoban"), _STEPS, False),
        (_variants("Sudoku", "-very-easy", "-easy", "-medium", "-hard"), _of("[{} {} {}]", *[range(1, 10)] * 3), False),
        (_variants("TowerOfHanoi", "-medium", "-hard", "-hardcore", "-extreme"), _DISKS, True),
    )
    for names, moves, is_fixed in single:
        for name in names:
            yield name, ArenaGame(1, moves, is_fixed)
    double: tuple[tuple[Iterator[str], Moves], ...] = (
        (_variants("Briscola"), _of("[play {}]", range(1, 4))),
        (_variants("Chopsticks", "-medium", "-long"), _PIECES),
        (_variants("ConnectFour", "-blind", "-large"), _of("[col {}]", range(12))),
        (_variants("KuhnPoker", "-short", "-medium", "-long"), listed),
        (_variants("Nim", "-medium", "-large"), _of("[{} {}]", range(8), range(1, 10))),
        (_variants("PigDice", "-short", "-50"), listed),
        (_variants("SimpleTak", "-medium", "-large"), listed),
        (_variants("TicTacToe"), listed),
        (_variants("WildTicTacToe"), listed),
    )
    for names, moves in double:
        for name in names:
            yield name, ArenaGame(2, moves)


GAMES: Final[Mapping[str, ArenaGame]] = dict(_entries())
"""Those that begin without downloads and keys on Python 3.11 and end in a few dozen replies.

Left out: games of words (their lists are downloaded), of talk before a judge (a key is needed), of three and more
players, 2048 (its small goals are reached by chance, the others not in 100 replies), and games of two whose moves are
not told in a form that our own player can read; Minesweeper, which forgives the first mine; Othello and
QuantumTicTacToe, in which a player may be left without a move.
"""
