"""ScheduleMesh's rule: one victim that alone covers the request, chosen by priority and remaining time."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from functools import partial
from typing import Final

from headgate_replay.placement.bounds import Stoppable, judged
from headgate_replay.placement.engine import Engine, Policy, Shape
from headgate_replay.placement.jobs import HIGH_FROM

LabelRules = Mapping[str, Mapping[str, tuple[str, ...]]]

_REMAINING_WEIGHT: Final = 0.1
_MIN_SCORE: Final = 0.5
_SAME_POOL: Final = 1.0
_LABEL: Final = 0.5
_UNKNOWN_SHARE: Final = 0.5
"""Assumed remaining time of work of unknown duration, as a share of the time that it has run."""


class SingleVictim(Policy):
    """ScheduleMesh's scheduler with MEDIUM aggressiveness, interpreted as follows.

    - A request is admitted if there is room. With a priority of 8 or above it may use a reserved group that covers it;
      no other request may use reserved groups.
    - Otherwise one running job is stopped for it. The job's own resources must cover the whole request, and its
      priority must be lower by 1.0 or more, or a label rule names it and its priority is at most 0.5 higher. The
      highest score wins: priority difference + 0.1 x remaining seconds (half of its run time so far if its duration is
      unknown). Neither the lost work nor the free room next to the victim counts.
    - A victim in a reserved group takes the group with it; it is not created again.
    - There is no queue. The caller retries a refused submission: here at once whenever anything ends, in the order of
      submission; a job whose victim was stopped in vain retries when the next job is done.
    - While a victim is being stopped, no other job is admitted.
    - `victims_return`: ScheduleMesh forgets its victims. With this option, the caller of a victim submits it again, and
      it continues from its last checkpoint.

    The replay favours it: the room on nodes is checked together with the quota, so that nothing stays pending in Ray
    forever; gangs are admitted as a whole, though it has none; groups of finished work are free again, though its
    `complete` keeps them; non-preemptible work is not stopped; and its hand-off is as fast as ours.
    """

    def __init__(self, label_rules: LabelRules, *, victims_return: bool) -> None:
        self._label_rules = label_rules
        self._victims_return = victims_return
        self.name = "single victim, requeued" if victims_return else "single victim"
        fate = "are submitted again" if victims_return else "are lost"
        self.says = f"One victim that alone covers the request, by priority and remaining time; victims {fate}."

    def open(self, engine: Engine) -> None:
        """Create the reserved groups."""
        super().open(engine)
        self._refused: list[int] = []
        self._in_vain: set[int] = set()
        self._held: dict[int, int] = {}
        self._preemptor: int | None = None
        self._groups: dict[int, tuple[Shape, tuple[int, ...]]] = {}
        for number, reserved in enumerate(engine.cluster.reserved):
            shape = engine.room.shape_of(reserved.bundles, reserved.strategy)
            nodes = engine.room.place(shape)
            if nodes is not None:
                engine.room.take(shape, nodes)
                self._groups[number] = shape, nodes

    def arrived(self, job: int) -> None:
        """Take a new job in."""
        self._refused.append(job)

    def freed(self, job: int) -> None:
        """Return a reserved group, or destroy it with its victim."""
        is_victim = self.engine.finished_s[job] is None
        group = self._held.pop(job, None)
        if group is not None and is_victim:
            self.engine.room.give(*self._groups.pop(group))
        if not is_victim:
            self._in_vain.clear()
        elif self._victims_return:
            bisect.insort(self._refused, job)

    def decide(self) -> None:
        """Admit all jobs that can be admitted, in the order of submission."""
        if self.engine.stopping:
            return
        if self._preemptor is not None:
            job, self._preemptor = self._preemptor, None
            if not self._admit(job):
                self._in_vain.add(job)
                bisect.insort(self._refused, job)
        self._try_all()

    def _try_all(self) -> None:
        hopeless: set[tuple[Shape, float, tuple[tuple[str, str], ...]]] = set()
        for job in list(self._refused):
            asked = self.engine.trace.jobs[job]
            kind = (self.engine.shapes[job], asked.priority, tuple(sorted(asked.labels.items())))
            if kind in hopeless or job in self._in_vain:
                continue
            if self._admit(job):
                self._refused.remove(job)
            elif self._preempt(job):
                self._refused.remove(job)
                self._preemptor = job
                return
            else:
                hopeless.add(kind)

    def _admit(self, job: int) -> bool:
        engine = self.engine
        if engine.trace.jobs[job].priority >= HIGH_FROM:
            for group, (shape, nodes) in self._groups.items():
                if group not in self._held.values() and _covers(shape, engine.shapes[job]):
                    self._held[job] = group
                    engine.start(job, nodes, delay_s=0.0, takes_room=False)
                    return True
        place = engine.room.place(engine.shapes[job])
        if place is None:
            return False
        engine.start(job, place, delay_s=engine.cluster.latencies.create_s)
        return True

    def _preempt(self, job: int) -> bool:
        engine, scores = self.engine, self._scores(job)
        covering = [victim for victim in scores if _covers(engine.shapes[victim], engine.shapes[job])]
        if not covering:
            return False
        victim = max(covering, key=lambda each: scores[each])
        others = [self._stoppable(each) for each in scores if each != victim]
        free = [list(units) for units in engine.room.free]
        victims = {victim: self._stoppable(victim)}
        engine.judgements.append(partial(judged, engine.shapes[job], free, victims, others))
        engine.stop(victim)
        return True

    def _scores(self, job: int) -> dict[int, float]:
        """Return the scores of all jobs that the thresholds allow to be stopped for a job; the highest goes first."""
        jobs, found = self.engine.trace.jobs, {}
        priority, labels = jobs[job].priority, jobs[job].labels
        lower = [(key, rules[labels[key]]) for key, rules in self._label_rules.items() if labels.get(key) in rules]
        for victim, ends in self.engine.running.items():
            other = jobs[victim]
            difference = priority - other.priority
            is_named = bool(lower) and any(other.labels.get(key) in values for key, values in lower)
            if not other.preemptible or difference < (-_LABEL if is_named else _SAME_POOL):
                continue
            base = max(difference, _LABEL) if is_named else difference
            score = base + _REMAINING_WEIGHT * self._remaining_s(victim, ends)
            if score >= _MIN_SCORE:
                found[victim] = score
        return found

    def _remaining_s(self, victim: int, ends: float) -> float:
        engine = self.engine
        if engine.trace.jobs[victim].estimated_s > 0:
            return max(0.0, ends - engine.now)
        return _UNKNOWN_SHARE * max(0.0, engine.now - engine.works[victim].held_s)

    def _stoppable(self, victim: int) -> Stoppable:
        engine = self.engine
        job, work = engine.trace.jobs[victim], engine.works[victim]
        group = self._held.get(victim)
        shape, nodes = (engine.shapes[victim], work.nodes) if group is None else self._groups[group]
        lost = (work.unsaved_s(engine.now) + job.restart_s) * job.size.share_of(engine.cluster.total)
        return Stoppable(tuple(zip(nodes, shape.bundles, strict=True)), lost, job.band)


def _covers(one: Shape, other: Shape) -> bool:
    """Return whether the sum of one shape covers that of another in every resource."""
    return all(have >= wanted for have, wanted in zip(one.whole, other.whole, strict=True))
