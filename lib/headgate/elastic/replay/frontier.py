"""Frontiers: what each policy costs and how long requests wait under it, over all settings of its knob."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headgate.elastic.replay.bound import least_worker_s, least_worker_s_but
from headgate.elastic.replay.contenders import Terms, contender
from headgate.elastic.replay.load import Load
from headgate.elastic.replay.measures import Measures, measured


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a knob and what came of it."""

    value: float
    measures: Measures


@dataclass(frozen=True, slots=True)
class Frontier:
    """One policy over its knob, in the order of the knob's values."""

    policy: str
    knob: str
    points: tuple[Point, ...]

    @property
    def best(self) -> tuple[Point, ...]:
        """The points that no other setting of the knob beats in both cost and p99 waiting, cheapest first."""
        kept: list[Point] = []
        for point in sorted(self.points, key=lambda point: (point.measures.cost, point.measures.p99_s)):
            if not kept or point.measures.p99_s < kept[-1].measures.p99_s:
                kept.append(point)
        return tuple(kept)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        points = [{"value": point.value} | point.measures.document() for point in self.points]
        return {"policy": self.policy, "knob": self.knob, "points": points}


@dataclass(frozen=True, slots=True)
class Bound:
    """What no policy can do without, as a multiple of the work by the capacity.

    Attributes:
        wait_s: the longest that anybody waits, or that all but a hundredth wait.
        cost: if nobody waits longer; with starts.
        p99_cost: if at most one in a hundred waits longer; starts are free here.
    """

    wait_s: float
    cost: float
    p99_cost: float

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def frontier(
    name: str,
    terms: Terms,
    *,
    values: Sequence[float] | None = None,
    tell: Callable[[str], None] = lambda _what: None,
) -> Frontier:
    """Return a policy's frontier; `values` are those of its own sweep unless given.

    Raises:
        InvalidLoadError: there is no such policy.
    """
    who = contender(name)
    points = []
    for value in who.sweep(terms) if values is None else values:
        tell(f"{name}, {who.knob} {value:g}")
        points.append(Point(float(value), measured(terms.load, who.play(terms, value))))
    return Frontier(name, who.knob, tuple(points))


def bounds(load: Load, *, start_s: float, lowest: int, waits_s: Sequence[float] = (0.0, 0.5, 1.5)) -> tuple[Bound, ...]:
    """Return the bounds of a load for several times of waiting."""
    return tuple(
        Bound(
            wait_s,
            least_worker_s(load, start_s=start_s, wait_s=wait_s, lowest=lowest) / load.work_s,
            least_worker_s_but(load, share=0.01, wait_s=wait_s, lowest=lowest) / load.work_s,
        )
        for wait_s in waits_s
    )
