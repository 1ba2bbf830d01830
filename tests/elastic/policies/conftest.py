"""Demands as a pool would tell them."""

from __future__ import annotations

from typing import Any

from headgate.elastic.demand import Demand, Policy
from headgate.elastic.settings import ElasticConfig

SLOTS = 8.0


def config(**settings: Any) -> ElasticConfig:
    return ElasticConfig(**{"max_workers": 16} | settings)


def demand(**told: Any) -> Demand:
    """One active worker of 8 slots and nothing to do, but for what is told; worth follows from the requests."""
    running, waiting = told.get("running", 0), told.get("waiting", 0)
    slots = told.get("slots", SLOTS)
    worth = (running + waiting) / slots
    quiet = {
        "worth": worth,
        "waiting_worth": waiting / slots,
        "area": 0.0,
        "peak_worth": worth,
        "running": 0,
        "waiting": 0,
        "oldest_wait_s": 0.0,
        "arrived": 0,
        "active": 1,
        "starting": 0,
        "draining": 0,
        "slots": slots,
        "start_s": 1.0,
        "service_s": 2.0,
        "lowest": 1,
        "highest": 16,
    }
    return Demand(**quiet | told)


def wanted(policy: Policy, told: Demand, now: float) -> int:
    """Ask a policy, and check what it keeps."""
    workers = policy.decide(told, now).workers
    policy.validate()
    return workers


class Flow:
    """A steady flow of requests of 2 s each, by which a policy is asked every 5 s; its workers are what it wants."""

    def __init__(
        self, policy: Policy, *, awake: int = 1, start_s: float = 1.0, now: float = 0.0, has_started: bool = True
    ) -> None:
        self.policy, self.awake, self.start_s, self.now = policy, awake, start_s, now
        self.has_started = has_started
        self.because = ""
        self.arrived = 0.0
        self.area = 0.0

    def run(self, rate: float, for_s: float, *, every_s: float = 5.0) -> list[int]:
        """Return what it wanted at each decision."""
        found = []
        for _ in range(round(for_s / every_s)):
            self.now += every_s
            self.arrived += rate * every_s
            self.area += rate * 2.0 / SLOTS * every_s
            told = demand(
                running=rate * 2.0,
                arrived=round(self.arrived),
                area=self.area,
                active=self.awake,
                start_s=self.start_s,
                has_started=self.has_started,
            )
            desired = self.policy.decide(told, self.now)
            self.policy.validate()
            self.awake, self.because = min(16, max(1, desired.workers)), desired.because
            found.append(self.awake)
        return found
