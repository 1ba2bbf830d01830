"""The simulated site: how many workers there are, and how long they take to start and to go to sleep."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.elastic.replay.errors import InvalidLoadError


@dataclass(frozen=True, slots=True)
class Site:
    """Equal workers.

    Attributes:
        workers: how many there are.
        start_s: from the command to wake one until it can answer. An engine that sleeps takes about 1 s, one that is
            started anew 30 s and more.
        sleep_s: from the command to put one to sleep until its memory is free.
        awake: how many are awake when the load begins.
    """

    workers: int = 16
    start_s: float = 1.0
    sleep_s: float = 0.2
    awake: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.awake <= self.workers:
            raise InvalidLoadError(
                f"awake workers must be between 1 and the workers of the site (got {self.awake} of {self.workers})"
            )
        if self.start_s < 0 or self.sleep_s < 0:
            raise InvalidLoadError(f"start_s and sleep_s must be >= 0 (got {self.start_s:g} and {self.sleep_s:g})")

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names, so written that their order is that of the alphabet."""
        return tuple(f"worker-{number:03d}" for number in range(self.workers))
