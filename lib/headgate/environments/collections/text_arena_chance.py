"""What the random baseline scores in the games of textarena."""

from __future__ import annotations

from collections.abc import Mapping
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
