"""What an audit finds: differences between ledger, journal and Ray, each a sentence. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from headgate.core.events import PlacementDiffers
from headgate.placement.group import GroupState
from headgate.placement.service.service import PlacementService

HOST_PREFIX: Final = "headgate-host-"
OWN_PREFIX: Final = "headgate-own-"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that ledger, journal and Ray do not agree on.

    Attributes:
        kind: what it is about.
        name: of that.
        says: a sentence for people.
        is_leak: it is in Ray and nobody knows it: it can be removed.
        fixed: it was removed.
    """

    kind: Literal["group", "actor", "journal"]
    name: str
    says: str
    is_leak: bool = False
    fixed: bool = False

    def as_fixed(self) -> Difference:
        """Return it as removed."""
        return replace(self, fixed=True)

    def as_event(self) -> PlacementDiffers:
        """Return the event that tells of it."""
        return PlacementDiffers(self.says, self.name, self.fixed)


def compared(
    service: PlacementService, groups: Collection[str], actors: Iterable[str], changing: Collection[GroupState]
) -> list[Difference]:
    """Return the differences of a service from the groups and actors of ours that are in Ray."""
    ledger = service.ledger
    found = [
        Difference("group", name, f"Group {name} is in Ray but not in the ledger: its resources are lost", is_leak=True)
        for name in sorted(set(groups) - ledger.groups.keys())
    ]
    found += [
        Difference("group", group.group_id, f"Group {group.group_id} is {group.state} in the ledger but not in Ray")
        for group in ledger.groups.values()
        if group.group_id not in groups and group.state not in changing
    ]
    for name in sorted(actors):
        if name.startswith(HOST_PREFIX) and name.removeprefix(HOST_PREFIX).rsplit("-", 2)[0] not in ledger.groups:
            found.append(Difference("actor", name, f"Host {name} is alive but its group is unknown", is_leak=True))
        owner = ledger.requests.get(name.removeprefix(OWN_PREFIX))
        if name.startswith(OWN_PREFIX) and (owner is None or owner.stage.has_ended):
            found.append(Difference("actor", name, f"Actor {name} is alive but its request does not run", is_leak=True))
    for table, known in (("groups", ledger.groups), ("requests", ledger.requests), ("pools", ledger.pools)):
        for name in sorted(service.journal.names(table) ^ known.keys()):
            place = "ledger but not in the journal" if name in known else "journal but not in the ledger"
            found.append(Difference("journal", name, f"{name} of {table} is in the {place}"))
    return found
