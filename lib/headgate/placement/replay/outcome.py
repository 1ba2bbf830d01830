"""What a policy made of a trace: the record that every figure and table is counted from."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.placement.replay.work import Attempt


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision to stop work for a job, beside the least that it could have lost.

    Shares are seconds of the whole cluster: dominant share of the victim times seconds lost.

    Attributes:
        at_s: when.
        job: position of the job that gets the room.
        victims: positions of the jobs that are stopped.
        lost_share_s: what the victims lose.
        least_share_s: the least that any feasible set of victims that the same rules allow would have lost.
        least_in_band_share_s: the same among sets with no victim of a higher band than those that were chosen.
        is_exact: whether both were found by complete search; else they are lower bounds that ignore nodes.
    """

    at_s: float
    job: int
    victims: tuple[int, ...]
    lost_share_s: float
    least_share_s: float
    least_in_band_share_s: float
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one trace.

    Attributes:
        policy: its name in tables.
        says: what it does, in a sentence.
        attempts: every stay of every job, in the order they ended.
        finished_s: when each job was done; None for those that never were.
        decisions: the preemptions that were planned.
        took_s: seconds of real time that the replay took.
    """

    policy: str
    says: str
    attempts: tuple[Attempt, ...]
    finished_s: tuple[float | None, ...]
    decisions: tuple[Decision, ...] = ()
    took_s: float = 0.0
