"""The train role: makes the next version of the policy from scored batches."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.placement.roles.batches import names_in, read_batch
from headgate.placement.roles.episodes import ScoredEpisode
from headgate.placement.roles.learner import Learner
from headgate.placement.roles.policy import Policy, blank_policy
from headgate.placement.roles.role import Place, Role

EPOCHS: Final = 8
RATE: Final = 0.15


@dataclass(slots=True)
class _Progress:
    """How far an update has come; what a checkpoint holds."""

    version: int = 0
    epoch: int = 0
    names: list[str] = field(default_factory=list)
    mean: float = 0.0
    is_published: bool = False


class Train(Role):
    """The update of a round: version `round_number` of the policy, from the round's scored batches, in `epochs` steps.

    The new policy is published before the batches it was made of are taken away; a stop between the two takes them
    away after the next start, and no batch is learned from twice.
    """

    def __init__(self, place: Place, round_number: int, epochs: int = EPOCHS, rate: float = RATE) -> None:
        super().__init__(f"train-{round_number:03d}", place)
        _, skill = place.played()
        self._features = skill.features
        self._epochs, self._rate = epochs, rate
        self._progress = _Progress(version=round_number)
        self._learner: Learner | None = None
        self._episodes: list[ScoredEpisode] = []

    def _work(self) -> bool:
        if self._progress.is_published:
            self._take_away()
            return False
        learner = self._prepared()
        if not self._episodes:
            return False
        learner.step(self._episodes, self._rate)
        self._progress.epoch += 1
        if self._progress.epoch >= self._epochs:
            self.folder.publish(Policy(learner.weights, self._progress.version))
            self._progress.is_published = True
        return True

    def _prepared(self) -> Learner:
        if self._learner is None:
            before = self.folder.policy() or blank_policy(self._features)
            self._learner = Learner.of(before)
            self._progress.names = names_in(self.folder.scored, self._progress.version)
        if not self._episodes:
            batches = [read_batch(self.folder.scored / name) for name in self._progress.names]
            self._episodes = [episode for batch in batches if batch is not None for episode in batch.scored()]
            scores = [episode.score for episode in self._episodes]
            self._progress.mean = sum(scores) / max(1, len(scores))
        return self._learner

    def _take_away(self) -> None:
        """Take away what the round has played, scored or not: the next one plays with another policy."""
        for folder in (self.folder.played, self.folder.scored):
            for name in names_in(folder, self._progress.version):
                (folder / name).unlink(missing_ok=True)

    def restore(self, state: bytes) -> None:
        """Go on within the update."""
        told = json.loads(state)
        self._progress = _Progress(**told["progress"])
        self._learner = Learner.of_bytes(base64.b64decode(told["learner"])) if told["learner"] else None

    def figures(self) -> dict[str, Any]:
        """Return the version that was made, of how many batches, and their mean reward."""
        progress = self._progress
        return {
            "version": progress.version,
            "batches": len(progress.names),
            "steps": progress.epoch,
            "mean_reward": progress.mean,
            "is_published": progress.is_published,
        }

    def _state(self) -> bytes:
        learner = "" if self._learner is None else base64.b64encode(self._learner.as_bytes()).decode()
        progress = self._progress
        told = {
            "version": progress.version,
            "epoch": progress.epoch,
            "names": progress.names,
            "mean": progress.mean,
            "is_published": progress.is_published,
        }
        return json.dumps({"progress": told, "learner": learner}).encode()
