"""A ledger with an executor that does what it says when a test lets it, and a clock that a test moves."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from headgate.core import events
from headgate.core.events import Event
from headgate.placement.amounts import Amounts, amounts
from headgate.placement.ledger import PlacementLedger
from headgate.placement.outbox import Command, CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.outcomes import LedgerSettings, Why
from headgate.placement.pool import GroupShape, NodeView, Pool
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.rules import PreemptionRules, checked_rules
from tests.placement.ledger.cluster_model import ClusterModel

ROLES = {"role": {"train": ["reward", "rollout"], "reward": ["rollout"]}}
SETTINGS = LedgerSettings(driver_lease_s=1e9)


def rules(**more: Any) -> PreemptionRules:
    return checked_rules(**({"label_rules": ROLES, "min_runtime_s": 0, "budget_share": 1.0} | more))


def reserved(cpu: float = 2, gpu: float = 0) -> GroupShape:
    return GroupShape((amounts(cpu=cpu, gpu=gpu),))


def pool(name: str = "p", cpu: float = 8, gpu: float = 0, **more: Any) -> Pool:
    return Pool(name, amounts(cpu=cpu, gpu=gpu), **more)


class World:
    """One ledger, one pool `p` unless others are opened, nodes of 8 CPUs."""

    def __init__(
        self,
        *pools: Pool,
        nodes: Mapping[str, Amounts] | None = None,
        preemption: PreemptionRules | None = None,
        settings: LedgerSettings = SETTINGS,
    ) -> None:
        self.now = 0.0
        self.cluster = ClusterModel()
        self.settings = settings
        self.pending: list[Command] = []
        self.told: list[Event] = []
        self.generation = 1
        self.ledger = PlacementLedger(settings, preemption or rules())
        self.see(nodes or {"n0": amounts(cpu=8)})
        for each in pools or (pool(),):
            self.ledger.open_pool(each, self.now)
        self.settle()

    # What users and machines do

    def see(self, nodes: Mapping[str, Amounts]) -> None:
        self.cluster.nodes = {name: NodeView(name, has) for name, has in nodes.items()}
        self.ledger.see_nodes(list(self.cluster.nodes.values()), self.now)

    def ask(self, name: str, cpu: float = 1, gpu: float = 0, *, members: int = 1, **more: Any) -> PlacementRequest:
        in_pool, holder, role = more.pop("pool", "p"), more.pop("holder", "driver"), more.pop("role", None)
        more.setdefault("labels", {} if role is None else {"role": role})
        wanted = PlacementRequest(name, in_pool, (amounts(cpu=cpu, gpu=gpu),) * members, **more)
        self.ledger.submit(wanted, holder, self.now)
        self.ledger.validate()
        return wanted

    def submit(self, name: str, cpu: float = 1, gpu: float = 0, **more: Any) -> Occupancy:
        """Submit and let the executor do what follows; return the request as it then stands."""
        self.ask(name, cpu, gpu, **more)
        self.settle()
        return self.request(name)

    def end(self, name: str, failed: str | None = None) -> None:
        request = self.request(name)
        self.cluster.left(name, request.epoch)
        self.ledger.work_ended(name, request.epoch, self.now, failed)
        self.settle()

    def lose(self, name: str) -> None:
        request = self.request(name)
        self.cluster.left(name, request.epoch)
        self.ledger.work_lost(name, request.epoch, self.now, "its process died")
        self.settle()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    # What the executor does

    def decide(self) -> list[Command]:
        self.ledger.validate()
        commands = self.ledger.decide(self.now)
        self.ledger.validate()
        self.told += self.ledger.outbox.take_events()
        self.ledger.outbox.take_changes()
        for command in commands:
            self.take_in(command)
        self.pending += commands
        return commands

    def take_in(self, command: Command) -> None:
        if isinstance(command, CreateGroup):
            self.cluster.create(command)
        elif isinstance(command, RemoveGroup):
            self.cluster.remove(command)
        elif isinstance(command, StartWork):
            self.cluster.start(command, self.request(command.request_id).request.bundles)
        else:
            self.cluster.stop(command)

    def do(self, command: Command) -> None:
        """Carry out one command and report it."""
        if isinstance(command, CreateGroup):
            self.cluster.groups[command.group_id].is_there = True
        elif isinstance(command, RemoveGroup):
            del self.cluster.groups[command.group_id]
        elif isinstance(command, StopWork):
            self.cluster.left(command.request_id, command.epoch)
        self.report(command)

    def report(self, command: Command) -> None:
        """Report that a command was carried out."""
        if isinstance(command, CreateGroup):
            self.ledger.group_created(command.group_id, command.epoch, command.nodes, self.now)
        elif isinstance(command, RemoveGroup):
            self.ledger.group_gone(command.group_id, command.epoch, self.now)
        elif isinstance(command, StartWork):
            self.ledger.work_started(command.request_id, command.epoch, self.now)
        else:
            self.ledger.work_stopped(command.request_id, command.epoch, self.now, saved=True, dead=True)
        self.ledger.validate()

    def settle(self) -> None:
        """Carry out everything until the ledger wants nothing more."""
        self.decide()
        while self.pending:
            self.do(self.pending.pop(0))
            self.decide()

    def restart(self) -> None:
        """Let the ledger be restored from its rows, as they would come out of a journal."""
        old, self.generation = self.ledger, self.generation + 1
        starting = [command for command in self.pending if isinstance(command, StartWork)]
        self.pending = []
        for group_id in [group_id for group_id, made in self.cluster.groups.items() if not made.is_there]:
            del self.cluster.groups[group_id]
        self.ledger = PlacementLedger.restore(
            self.settings,
            old.rules,
            generation=self.generation,
            pools=copy.deepcopy(list(old.pools.values())),
            groups=copy.deepcopy(list(old.groups.values())),
            requests=copy.deepcopy(list(old.requests.values())),
            durations=copy.deepcopy(dict(old.durations.counts)),
            now=self.now,
        )
        self.ledger.validate()
        self.ledger.see_nodes(list(self.cluster.nodes.values()), self.now)
        for command in starting:
            if self.stage(command.request_id) is Stage.PLACING:
                self.pending.append(command)

    # What tests look at

    def request(self, name: str) -> Occupancy:
        return self.ledger.requests[name]

    def stage(self, name: str) -> Stage:
        return self.request(name).stage

    def running(self) -> set[str]:
        return {name for name, each in self.ledger.requests.items() if each.stage is Stage.RUNNING}

    def reserved_groups(self) -> list[str]:
        return [name for name, group in self.ledger.groups.items() if group.reserved is not None]

    def dynamic_groups(self) -> list[str]:
        return [name for name, group in self.ledger.groups.items() if group.reserved is None]

    def step(self, name: str) -> str:
        """Return the step of the ladder that placed a request last."""
        placed = [each for each in self.told if isinstance(each, events.WorkPlaced) and each.request == name]
        return placed[-1].step

    def stopped(self) -> list[str]:
        return [each.request for each in self.told if isinstance(each, events.WorkPreempted)]

    def why(self, name: str) -> Why:
        found = self.ledger.why(name, self.now)
        assert found is not None
        return found
