"""How large the placement benchmark is, and what it is held to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlacementParameters:
    """Parameters of the scenario.

    Attributes:
        nodes: of the Ray cluster, beside its head; each with 2 logical GPUs.
        starts: of work in a reserved group with a warm host.
        rival_starts: of an actor as plain Ray starts it; they take a hundred times as long.
        stops: preemptions of work that lets itself be stopped.
        stuck_stops: preemptions of work that does not.
        cycles: of submit, preempt, end, in a row, after which nothing may be left.
        cancel_timeout_s: that stopped work has.
        hours: of each generated mix that is replayed.
        mixes: that are replayed.
        bar_start_ms: from submit to running at p95.
        bar_stop_more_ms: that a stop may take beyond `cancel_timeout_s`.
        bar_wait: waiting of high-priority work at p95, as a share of what it is under FIFO.
        bar_lost: lost work over the least that could have been lost, of victims of the same bands.
    """

    nodes: int = 2
    starts: int = 60
    rival_starts: int = 5
    stops: int = 8
    stuck_stops: int = 3
    cycles: int = 25
    cancel_timeout_s: float = 0.5
    hours: float = 3.0
    mixes: tuple[str, ...] = ("rlhf",)
    bar_start_ms: float = 10.0
    bar_stop_more_ms: float = 100.0
    bar_wait: float = 1.0
    bar_lost: float = 1.2
