"""A cluster as the ledger's commands and reports make it, counted without the ledger's own code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.placement.amounts import Amounts
from headgate.placement.outbox import CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.pool import GroupShape, NodeView


@dataclass(slots=True)
class Made:
    """A group that the executor was told to make and has not reported gone."""

    shape: GroupShape
    nodes: tuple[str, ...]
    is_there: bool = False
    occupant: tuple[str, int] | None = None


@dataclass(slots=True)
class ClusterModel:
    """Groups with their occupants. Asserts what must hold in a real cluster, whatever the ledger thinks."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    groups: dict[str, Made] = field(default_factory=dict)

    def create(self, command: CreateGroup) -> None:
        assert command.group_id not in self.groups, f"{command.group_id} is made twice"
        assert len(command.nodes) == len(command.shape.bundles)
        self.groups[command.group_id] = Made(command.shape, command.nodes)
        self.assert_nothing_is_overcommitted()

    def assert_nothing_is_overcommitted(self) -> None:
        taken: dict[tuple[str, str], int] = {}
        for made in self.groups.values():
            for node, bundle in zip(made.nodes, made.shape.bundles, strict=True):
                for name, units in bundle.units:
                    taken[node, name] = taken.get((node, name), 0) + units
        for (node, name), units in taken.items():
            if node in self.nodes:
                have = self.nodes[node].total.get(name) - self.nodes[node].foreign.get(name)
                assert units <= have, f"{units} of {name} are taken on {node}, which has {have}"

    def start(self, command: StartWork, bundles: tuple[Amounts, ...]) -> None:
        made = self.groups[command.group_id]
        assert made.is_there, f"{command.request_id} starts in {command.group_id}, which is not made yet"
        assert made.occupant is None, f"{command.group_id} goes to {command.request_id} and is {made.occupant}'s"
        assert len(bundles) == len(made.shape.bundles)
        for wanted, have in zip(bundles, made.shape.bundles, strict=True):
            assert all(units <= have.get(name) for name, units in wanted.units), f"{wanted} does not fit {have}"
        made.occupant = (command.request_id, command.epoch)

    def stop(self, command: StopWork) -> None:
        occupant = self.groups[command.group_id].occupant
        assert occupant == (command.request_id, command.epoch), f"{command} is for {occupant}"

    def remove(self, command: RemoveGroup) -> None:
        made = self.groups[command.group_id]
        assert made.occupant is None, f"{command.group_id} is removed under {made.occupant}"

    def left(self, request_id: str, epoch: int) -> None:
        for made in self.groups.values():
            if made.occupant == (request_id, epoch):
                made.occupant = None

    def occupants(self) -> Mapping[str, str]:
        return {made.occupant[0]: group_id for group_id, made in self.groups.items() if made.occupant is not None}
