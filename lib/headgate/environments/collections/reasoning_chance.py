"""What the random baseline scores in the data sets of reasoning-gym."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CHANCE: Final[Mapping[str, float]] = {
    "acre": 0.033,
    "basic_arithmetic": 0.017,
    "chain_sum": 0.017,
    "circuit_logic": 0.05,
    "color_cube_rotation": 0.05,
    "course_schedule": 0.033,
    "game_of_life_halting": 0.017,
    "largest_island": 0.05,
    "lcm": 0.017,
    "maze": 0.017,
    "number_format": 0.017,
    "number_sequence": 0.15,
    "prime_factorization": 0.017,
    "self_reference": 0.017,
    "string_manipulation": 0.017,
}
"""Mean over tasks 0 to 59; 0 in all others."""
