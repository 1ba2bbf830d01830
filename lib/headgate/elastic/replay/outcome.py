"""What a policy made of a load: the record that every figure and table is counted from."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.elastic.replay.load import Site


@dataclass(frozen=True, slots=True)
class Stay:
    """A stretch of time in which a worker held its memory: starting, active, draining, going to sleep.

    Attributes:
        worker: its name.
        woken_s: when it was told to wake; 0 for those that were awake at the start.
        ready_s: when it could answer; None if it was never ready.
        drained_s: when it took no request any more; None if the end came first.
        slept_s: when its memory was free; None if the end came first.
    """

    worker: str
    woken_s: float
    ready_s: float | None
    drained_s: float | None
    slept_s: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one load.

    Attributes:
        policy: its name in tables.
        says: what it does, in a sentence.
        site: the workers.
        ended_s: when the last answer was complete, or the load's window was over if that was later.
        given_s: of each call, when it was given to the worker that answered it; None for those that were lost.
        done_s: of each call, when its answer was complete; None for those that were lost.
        stays: of all workers, in the order in which they began.
        changes: seconds and +1 or -1 for every worker that was started, drained, or turned back while it drained.
        wanted: seconds and number of workers whenever the policy wanted another number.
        hand_overs: calls that were taken from one worker and given to another.
        dropped: calls that were never answered.
        doubled: calls that were answered more than once.
        decisions: how often the policy was asked.
        took_s: real seconds of the replay.
    """

    policy: str
    says: str
    site: Site
    ended_s: float
    given_s: tuple[float | None, ...]
    done_s: tuple[float | None, ...]
    stays: tuple[Stay, ...]
    changes: tuple[tuple[float, int], ...]
    wanted: tuple[tuple[float, int], ...]
    hand_overs: int
    dropped: int
    doubled: int
    decisions: int
    took_s: float
