"""The arena: stored answers of two models to one task before a judge, in both orders."""

from headgate.run.arena.assembly import ArenaRequest, ArenaResult, run_arena
from headgate.run.arena.records import ARENA_FOLDER

__all__ = ["ARENA_FOLDER", "ArenaRequest", "ArenaResult", "run_arena"]
