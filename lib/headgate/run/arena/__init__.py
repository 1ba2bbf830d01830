"""The arena: a judge compares two models' stored answers to one task, in both orders."""

from headgate.run.arena.assembly import ArenaRequest, ArenaResult, run_arena
from headgate.run.arena.records import ARENA_FOLDER

__all__ = ["ARENA_FOLDER", "ArenaRequest", "ArenaResult", "run_arena"]
