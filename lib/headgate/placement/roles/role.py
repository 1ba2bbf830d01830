"""What every role has in common: it works in steps, and can be stopped and gone on with between any two."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.environments import Environment, environment
from headgate.placement.roles.batches import RoleFolder
from headgate.placement.roles.skill import Skill, skill_of

Figures = Mapping[str, Any]
"""What a role has done so far: plain numbers, texts and lists."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a role works: its environment, and the folder that it shares with the other roles."""

    environment: str
    folder: str

    def opened(self) -> RoleFolder:
        """Return the folder."""
        return RoleFolder(Path(self.folder))

    def played(self) -> tuple[Environment, Skill]:
        """Return the environment and how a policy plays it.

        Raises:
            InvalidPlacementError: no policy can play it.
            UnknownEnvironmentError: nobody registers it.
        """
        return environment(self.environment), skill_of(self.environment)


class Role(ABC):
    """One role of a training. Runs in one thread; `cancel` and `checkpoint` may be called from another.

    A role that was stopped and is restored from its last checkpoint ends with the same files as one that never was.
    """

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.folder = place.opened()
        self._stopped = threading.Event()
        self._step = threading.Lock()  # of a step and a checkpoint: neither sees the other half done

    def run(self) -> Figures:
        """Work until everything is done or `cancel` is called, and return what was done."""
        while not self._stopped.is_set() and self.step():
            pass
        return self.figures()

    def run_in_folder(self) -> Figures:
        """Do what `run` does, from the checkpoint in the folder on, and leave one there after every step."""
        state = self.folder.state(self.name)
        if state is not None:
            self.restore(state)
        goes_on = True
        while goes_on and not self._stopped.is_set():
            goes_on = self.step()
            self.folder.keep_state(self.name, self.checkpoint())
        return self.figures()

    def step(self) -> bool:
        """Do the smallest piece of work, and tell whether there is more."""
        with self._step:
            return self._work()

    def checkpoint(self) -> bytes:
        """Return what `restore` goes on from; waits for the step in progress."""
        with self._step:
            return self._state()

    def cancel(self, task_id: str = "") -> None:
        """Have `run` return after the step in progress."""
        del task_id
        self._stopped.set()

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Go on from a checkpoint."""

    @abstractmethod
    def figures(self) -> Figures:
        """Return what was done so far."""

    @abstractmethod
    def _work(self) -> bool: ...

    @abstractmethod
    def _state(self) -> bytes: ...

    def _pause(self, seconds: float) -> None:
        """Wait for other roles; a stop ends it."""
        self._stopped.wait(seconds)
