"""How a job's work goes on through stops and new starts, and the record of it. The same for every policy."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.placement.replay.job import Job


@dataclass(frozen=True, slots=True)
class Attempt:
    """One stay of a job on nodes.

    Attributes:
        job: position of the job in its trace.
        nodes: node of each bundle.
        held_s: from when it held them.
        began_s: when its work began; `ended_s` where it was stopped before.
        ended_s: when its work ended or was stopped.
        lost_s: seconds of work that have to be done again, and of the restart that this stay began with.
        is_last: whether the job was done.
    """

    job: int
    nodes: tuple[int, ...]
    held_s: float
    began_s: float
    ended_s: float
    lost_s: float
    is_last: bool


class Work:
    """The progress of one job; owned by one replay.

    Invariant: `saved_s` grows only, and is never more than the job's duration.
    """

    __slots__ = ("began_s", "held_s", "job", "nodes", "position", "saved_s", "stops")

    def __init__(self, position: int, job: Job) -> None:
        self.position = position
        self.job = job
        self.saved_s = 0.0
        self.stops = 0
        self.nodes: tuple[int, ...] = ()
        self.held_s = 0.0
        self.began_s: float | None = None

    @property
    def restart_s(self) -> float:
        """What this start costs before work goes on."""
        return self.job.restart_s if self.stops else 0.0

    @property
    def left_s(self) -> float:
        """How long a stay that begins now takes."""
        return self.restart_s + self.job.duration_s - self.saved_s

    def hold(self, nodes: tuple[int, ...], now: float) -> None:
        """Take nodes; work does not run yet."""
        self.nodes, self.held_s, self.began_s = nodes, now, None

    def begin(self, now: float) -> float:
        """Begin to work, and return when it will be done."""
        self.began_s = now
        return now + self.left_s

    def checkpoint_s(self, now: float) -> float:
        """Return when this stay last saved its progress; its beginning where it has not."""
        began = now if self.began_s is None else self.began_s
        saved = self._saved_here(now)
        return began + self.restart_s + saved if saved else began

    def unsaved_s(self, now: float) -> float:
        """Return what a stop now would lose of this stay, its restart included."""
        if self.began_s is None or now <= self.began_s:
            return 0.0
        return now - self.began_s - self._saved_here(now)

    def stop(self, now: float) -> Attempt:
        """Stop it: what is not saved is lost. Work that had not begun by then was not interrupted."""
        lost = self.unsaved_s(now)
        began = now if self.began_s is None else min(now, self.began_s)
        self.saved_s += self._saved_here(now)
        self.stops += began < now
        self.began_s = None
        return Attempt(self.position, self.nodes, self.held_s, began, now, lost, is_last=False)

    def end(self, now: float) -> Attempt:
        """End it: all is done."""
        began = now if self.began_s is None else self.began_s
        return Attempt(self.position, self.nodes, self.held_s, began, now, self.restart_s, is_last=True)

    def _saved_here(self, now: float) -> float:
        every = self.job.checkpoint_every_s
        if every is None or self.began_s is None:
            return 0.0
        progress = min(now - self.began_s - self.restart_s, self.job.duration_s - self.saved_s)
        return max(0.0, progress // every * every)
