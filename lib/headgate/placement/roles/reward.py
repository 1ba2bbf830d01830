"""The reward role: scores what was played, by the environment's own score."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from headgate.placement.roles.batches import Batch, names_in, read_batch, write_whole
from headgate.placement.roles.episodes import scored
from headgate.placement.roles.role import Place, Role


class Reward(Role):
    """Scores batches of a round: each episode is made again from its replies, and the environment says its worth.

    A batch is written with its scores before it is taken away without them: a stop between the two scores it twice,
    to the same file.
    """

    def __init__(self, place: Place, round_number: int, batches: int) -> None:
        super().__init__(f"reward-{round_number:03d}", place)
        self._environment, _ = place.played()
        self._round, self._wanted = round_number, batches
        self._scored: list[str] = []
        self._sum = 0.0
        self._episodes = 0

    def _work(self) -> bool:
        if len(self._scored) >= self._wanted:
            return False
        done = set(self._scored)
        names = names_in(self.folder.played, self._round)
        for left in done.intersection(names):  # it was stopped between the two
            (self.folder.played / left).unlink(missing_ok=True)
        waiting = [name for name in names if name not in done]
        batch = read_batch(self.folder.played / waiting[0]) if waiting else None
        if batch is None:
            return False
        name = waiting[0]
        scores = asyncio.run(self._scores(batch))
        write_whole(self.folder.scored / name, replace(batch, scores=scores).as_bytes())
        (self.folder.played / name).unlink(missing_ok=True)
        self._scored.append(name)
        self._sum += sum(scores)
        self._episodes += len(scores)
        return True

    async def _scores(self, batch: Batch) -> tuple[float, ...]:
        return tuple([await scored(self._environment, e.index, e.replies) for e in batch.episodes])

    def restore(self, state: bytes) -> None:
        """Go on after the last batch that was scored."""
        told = json.loads(state)
        self._scored, self._sum, self._episodes = told["scored"], told["sum"], told["episodes"]

    def figures(self) -> dict[str, Any]:
        """Return how many episodes were scored, and their mean."""
        mean = self._sum / self._episodes if self._episodes else None
        return {"batches": len(self._scored), "episodes": self._episodes, "mean_reward": mean}

    def _state(self) -> bytes:
        return json.dumps({"scored": self._scored, "sum": self._sum, "episodes": self._episodes}).encode()
