"""Workers and policy servers in virtual time on the pure ledger: waiting in line compared with polling.

A worker claims a job, loads its simulator, gets a policy server, runs the episode, and claims the next job. The rules
differ in how it gets the server: it waits in line, or it polls, and the first to ask gets it (the legacy protocol).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from headgate.jobqueue import ClaimRequest, Completion, Instant, Job, JobSpec, LeaseRef, Ledger, Reserved, ResourceSpec
from headgate.jobqueue.stores import open_store

LOAD_S: Final = 30.0
EPISODE_S: Final = 60.0
SPREAD: Final = 0.2
"""Maximum relative deviation of loads and episodes."""

_WARM_UP_S: Final = 900.0
_LEASE_S: Final = 1e6


@dataclass(frozen=True, slots=True)
class Use:
    """The use of policy servers in steady state."""

    busy: float  # share of all servers' time in which they had a job
    by_server: dict[str, float]  # that share per server
    gaps_s: list[float]  # from the end of an episode to the start of the next one on the same server
    episodes: int  # episodes that ended


@dataclass(slots=True)
class _Watch:
    since_s: float
    until_s: float
    begun: dict[str, float] = field(default_factory=dict)
    freed: dict[str, float] = field(default_factory=dict)
    busy_s: dict[str, float] = field(default_factory=dict)
    gaps_s: list[float] = field(default_factory=list)
    episodes: int = 0

    def begins(self, server: str, now: float) -> None:
        self.begun[server] = now
        if server in self.freed and now >= self.since_s:
            self.gaps_s.append(now - self.freed[server])

    def ends(self, server: str, now: float) -> None:
        inside = min(now, self.until_s) - max(self.begun.pop(server), self.since_s)
        self.busy_s[server] = self.busy_s.get(server, 0.0) + max(0.0, inside)
        self.freed[server] = now
        self.episodes += self.since_s <= now <= self.until_s


_SERVERS: Final = tuple(ResourceSpec("team", "10.0.0.1", 8000 + number) for number in range(8))
"""Servers of one pool; each serves every task."""


def simulated(
    *,
    workers: int,
    hours: float,
    seed: int,
    poll_s: float | None = None,
    servers: Sequence[ResourceSpec] = _SERVERS,
    jobs: Sequence[tuple[str, str]] = (("team", "count"),),
) -> Use:
    """Return the use of the servers by parallel workers, over `hours` of steady state after a warm-up.

    The longest waiting worker gets a freed server at once. With `poll_s`, each worker polls at that interval, and the
    first to ask gets it. `jobs` are pairs (pool, task) that are submitted in turn.
    """
    return _Simulation(workers, hours, seed, poll_s, servers, jobs).run()


class _Simulation:
    def __init__(
        self,
        workers: int,
        hours: float,
        seed: int,
        poll_s: float | None,
        servers: Sequence[ResourceSpec],
        jobs: Sequence[tuple[str, str]],
    ) -> None:
        self._store = open_store("memory:").own("headgate bench")
        self._ledger = Ledger(self._store, Instant(0.0, 0.0))
        self._rng = random.Random(seed)
        self._poll_s = poll_s
        self._workers = workers
        self._watch = _Watch(_WARM_UP_S, _WARM_UP_S + 3600.0 * hours)
        self._events: list[tuple[float, int, str, Job]] = []
        self._order = count()
        self._tickets: dict[int, Job] = {}
        self._now = 0.0
        self._servers = [one.resource_id for one in self._ledger.add_resources(servers, self._at)]
        most = int(len(servers) * 1.5 * self._watch.until_s / EPISODE_S) + workers
        specs = [JobSpec(f"job-{n}", "team", jobs[n % len(jobs)][1], pool=jobs[n % len(jobs)][0]) for n in range(most)]
        self._ledger.submit(specs, self._at)
        self._commit()

    @property
    def _at(self) -> Instant:
        return Instant(self._now, self._now)

    def run(self) -> Use:
        for number in range(self._workers):
            self._claim(f"worker-{number}", self._rng.uniform(0.0, LOAD_S))
        while self._events and self._now < self._watch.until_s:
            self._now, _, what, job = heapq.heappop(self._events)
            if what == "episode ended":
                self._end(job)
            else:
                self._ask(job)
            for settled in self._ledger.settle(self._at):
                if isinstance(settled.outcome, Reserved):
                    self._begin(self._tickets.pop(settled.ticket), settled.outcome)
            self._commit()
        for server in list(self._watch.begun):
            self._watch.ends(server, self._watch.until_s)
        length = self._watch.until_s - self._watch.since_s
        by_server = {server: self._watch.busy_s.get(server, 0.0) / length for server in self._servers}
        busy = sum(by_server.values()) / len(by_server)
        return Use(busy, by_server, self._watch.gaps_s, self._watch.episodes)

    def _commit(self) -> None:
        self._store.commit(self._ledger.changes)
        self._ledger.committed()

    def _later(self, seconds: float, what: str, job: Job) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), what, job))

    def _varied(self, seconds: float) -> float:
        return seconds * self._rng.uniform(1.0 - SPREAD, 1.0 + SPREAD)

    def _claim(self, worker: str, late_s: float = 0.0) -> None:
        for job in self._ledger.claims.claim(ClaimRequest(worker, lease_s=_LEASE_S), self._at):
            self._later(late_s + self._varied(LOAD_S), "loaded", job)

    def _ask(self, job: Job) -> None:
        ref = LeaseRef(job.job_id, job.lease_id, job.epoch)
        outcome = self._ledger.reserve(ref, self._at, wait=self._poll_s is None)
        match outcome:
            case Reserved():
                self._begin(job, outcome)
            case _ if self._poll_s is not None:
                self._later(self._poll_s, "asks again", job)
            case _:
                self._tickets[outcome.ticket] = job  # type: ignore[union-attr]  # nothing else comes of a live claim

    def _begin(self, job: Job, reserved: Reserved) -> None:
        self._watch.begins(reserved.resource.resource_id, self._now)
        self._later(self._varied(EPISODE_S), "episode ended", job)

    def _end(self, job: Job) -> None:
        held = self._ledger.servers.held_by(job.job_id)
        assert held is not None, "an episode runs on a server"
        self._watch.ends(held.resource_id, self._now)
        self._ledger.claims.complete(LeaseRef(job.job_id, job.lease_id, job.epoch), Completion(), self._at)
        self._claim(job.worker)
