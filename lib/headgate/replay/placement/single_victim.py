"""ScheduleMesh's rule: one victim that alone covers the request, chosen by priority and remaining time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.replay.placement.bounds import Stoppable, least_lost
from headgate.replay.placement.engine import Decision, Engine, Shape
from headgate.replay.placement.jobs import HIGH_FROM

LabelRules = Mapping[str, Mapping[str, tuple[str, ...]]]

_REMAINING_WEIGHT: Final = 0.1
_MIN_SCORE: Final = 0.5
_SAME_POOL: Final = 1.0
_LABEL: Final = 0.5
_UNKNOWN_SHARE: Final = 0.5
"""Remaining time of work of unknown duration, as a share of the time that it has run."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What the rule says of one victim; higher scores go first."""

    job: int
    score: float


@dataclass(slots=True)
class _Group:
    """A reserved group; destroyed with its occupant when that is a victim."""

    shape: Shape
    nodes: tuple[int, ...]
    holder: int | None = None


@dataclass(slots=True)
class _Notes:
    """What a policy remembers between decisions."""

    refused: list[int] = field(default_factory=list)
    in_vain: set[int] = field(default_factory=set)
    held: dict[int, _Group] = field(default_factory=dict)
    victims: set[int] = field(default_factory=set)


class SingleVictim:
    """ScheduleMesh's scheduler, MEDIUM aggressiveness, read as follows.

    - A request is admitted when there is room. Of priority 8 and above it may use a reserved group that covers it;
      reserved groups are lent to nobody else.
    - Else one running piece of work is stopped for it: one whose own amounts cover the whole request, whose priority
      is lower by 1.0 or more, or that a label rule names and whose priority is not higher by more than 0.5. Of those
      the highest score wins: priority difference + 0.1 x remaining seconds, half of the time it has run where its
      duration is unknown. What is lost is not looked at, nor what is free beside the victim.
    - A victim in a reserved group takes the group with it, and nobody makes it again.
    - There is no queue. A refused submission is tried again by its caller: here at once whenever anything ends, in
      the order of submission; one whose victim was stopped in vain, when the next job is done.
    - One thing at a time: while a victim is being stopped, nobody else is admitted.
    - `victims_return`: ScheduleMesh forgets its victims. With it, the caller of a victim submits it again, and it goes
      on from its last checkpoint.

    In its favour: room on nodes is looked at with the quota, so that nothing pends in Ray for ever; gangs are
    admitted whole, though it knows none; groups of work that is done are free again, though its `complete`
    keeps them; work that must not be stopped is not; and its hand-off is as quick as ours.
    """

    def __init__(self, label_rules: LabelRules, *, victims_return: bool, checks_decisions: bool = True) -> None:
        self._label_rules = label_rules
        self._victims_return = victims_return
        self._checks = checks_decisions
        self.name = "single victim, requeued" if victims_return else "single victim"
        fate = "are submitted again" if victims_return else "are lost"
        self.says = f"One victim that alone covers the request, by priority and remaining time; victims {fate}."

    def open(self, engine: Engine) -> None:
        """Make the reserved groups."""
        self._engine = engine
        self._notes = _Notes()
        self._preemptor: int | None = None
        self._groups: list[_Group] = []
        for reserved in engine.cluster.reserved:
            shape = engine.room.shape_of(reserved.bundles, reserved.strategy)
            nodes = engine.room.place(shape)
            if nodes is not None:
                engine.room.take(shape, nodes)
                self._groups.append(_Group(shape, nodes))
        self._none = engine.room.shape_of((), "PACK")

    def arrived(self, job: int) -> None:
        """Take a new job in."""
        self._notes.refused.append(job)

    def freed(self, job: int) -> None:
        """Give a reserved group back, or destroy it with its victim."""
        notes = self._notes
        is_victim = job in notes.victims
        notes.victims.discard(job)
        group = notes.held.pop(job, None)
        if group is not None:
            group.holder = None
            if is_victim:
                self._groups.remove(group)
                self._engine.room.give(group.shape, group.nodes)
        if not is_victim:
            notes.in_vain.clear()
        elif self._victims_return:
            notes.refused.append(job)
            notes.refused.sort()

    def decide(self) -> None:
        """Admit what can be admitted, in the order of submission."""
        if self._engine.stopping:
            return
        if self._preemptor is not None:
            job, self._preemptor = self._preemptor, None
            if not self._admit(job):
                self._notes.in_vain.add(job)
                self._notes.refused.append(job)
                self._notes.refused.sort()
        self._try_all()

    def _try_all(self) -> None:
        hopeless: set[tuple[Shape, float, tuple[tuple[str, str], ...]]] = set()
        for job in list(self._notes.refused):
            asked = self._engine.trace.jobs[job]
            kind = (self._engine.shapes[job], asked.priority, tuple(sorted(asked.labels.items())))
            if kind in hopeless or job in self._notes.in_vain:
                continue
            if self._admit(job):
                self._notes.refused.remove(job)
            elif self._preempt(job):
                self._notes.refused.remove(job)
                self._preemptor = job
                return
            else:
                hopeless.add(kind)

    def _admit(self, job: int) -> bool:
        engine = self._engine
        create_s = engine.cluster.latencies.create_s
        if engine.trace.jobs[job].priority >= HIGH_FROM:
            for group in self._groups:
                if group.holder is None and _covers(group.shape, engine.shapes[job]):
                    group.holder = job
                    self._notes.held[job] = group
                    engine.start(job, group.nodes, delay_s=0.0, shape=self._none)
                    return True
        nodes = engine.room.place(engine.shapes[job])
        if nodes is None:
            return False
        engine.start(job, nodes, delay_s=create_s)
        return True

    def _preempt(self, job: int) -> bool:
        verdicts = [
            verdict for verdict in self._verdicts(job) if _covers(self._engine.shapes[verdict.job], self._shape(job))
        ]
        if not verdicts:
            return False
        victim = max(verdicts, key=lambda verdict: verdict.score).job
        if self._checks:
            self._note(job, victim)
        self._notes.victims.add(victim)
        self._engine.stop(victim)
        return True

    def _verdicts(self, job: int) -> Iterator[_Verdict]:
        """Give everyone whom the thresholds allow to stop for a job."""
        jobs = self._engine.trace.jobs
        priority, lower = jobs[job].priority, self._lower(job)
        for victim, ends in self._engine.running.items():
            other = jobs[victim]
            difference = priority - other.priority
            is_named = bool(lower) and any(other.labels.get(key) in values for key, values in lower)
            if not other.preemptible or difference < (-_LABEL if is_named else _SAME_POOL):
                continue
            base = max(difference, _LABEL) if is_named else difference
            score = base + _REMAINING_WEIGHT * self._remaining_s(victim, ends)
            if score >= _MIN_SCORE:
                yield _Verdict(victim, score)

    def _lower(self, job: int) -> list[tuple[str, tuple[str, ...]]]:
        """Return the label values that a job may stop, by key."""
        labels = self._engine.trace.jobs[job].labels
        return [(key, rules[labels[key]]) for key, rules in self._label_rules.items() if labels.get(key) in rules]

    def _remaining_s(self, victim: int, ends: float) -> float:
        engine = self._engine
        if engine.trace.jobs[victim].estimated_s > 0:
            return max(0.0, ends - engine.now)
        return _UNKNOWN_SHARE * max(0.0, engine.now - engine.works[victim].held_s)

    def _shape(self, job: int) -> Shape:
        return self._engine.shapes[job]

    def _note(self, job: int, victim: int) -> None:
        engine = self._engine
        options = {verdict.job: self._stoppable(verdict.job) for verdict in self._verdicts(job)}
        chosen = options[victim]
        least = least_lost(engine.room.free, self._shape(job), options.values())
        in_band = [each for each in options.values() if each.band <= chosen.band]
        within = least_lost(engine.room.free, self._shape(job), in_band)
        if least is None or within is None:  # stopped in vain: nobody could have made room
            return
        engine.decisions.append(
            Decision(
                engine.now, job, (victim,), chosen.cost, least.cost, within.cost, least.is_exact and within.is_exact
            )
        )

    def _stoppable(self, victim: int) -> Stoppable:
        engine = self._engine
        job, work = engine.trace.jobs[victim], engine.works[victim]
        group = self._notes.held.get(victim)
        shape, nodes = (engine.shapes[victim], work.nodes) if group is None else (group.shape, group.nodes)
        lost = (work.unsaved_s(engine.now) + job.restart_s) * job.size.share_of(engine.cluster.total)
        return Stoppable(tuple(zip(nodes, shape.bundles, strict=True)), lost, job.band)


def _covers(one: Shape, other: Shape) -> bool:
    """Tell whether the sum of one shape covers that of another in every resource."""
    return all(have >= wanted for have, wanted in zip(one.whole, other.whole, strict=True))
