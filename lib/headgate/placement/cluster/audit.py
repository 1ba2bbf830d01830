"""The audit: differences between ledger, journal and Ray, each as a sentence; it can remove leaks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

import ray
from ray.exceptions import RayError

from headgate.placement.cluster.connection import LEDGER_NAME, NAMESPACE
from headgate.placement.cluster.groups import PREFIX, Groups
from headgate.placement.cluster.hosts import HOST_PREFIX
from headgate.placement.pool import GroupState
from headgate.placement.service.protocol import GroupFailedError
from headgate.placement.service.service import PlacementService

OWN_PREFIX: Final = "headgate-own-"

_CHANGING: Final = frozenset({GroupState.CREATING, GroupState.REMOVING})


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing on which ledger, journal and Ray disagree.

    A leak exists in Ray but not in the ledger, so it can be removed.
    """

    kind: Literal["group", "actor", "journal"]
    name: str
    says: str
    is_leak: bool = False
    fixed: bool = False


def compared(service: PlacementService, groups: Collection[str], actors: Iterable[str]) -> list[Difference]:
    """Return where a service differs from the groups and actors of ours that exist in Ray."""
    ledger = service.ledger
    found = [
        Difference("group", name, f"Group {name} is in Ray but not in the ledger: its resources are lost", is_leak=True)
        for name in sorted(set(groups) - ledger.groups.keys())
    ]
    found += [
        Difference("group", group.group_id, f"Group {group.group_id} is {group.state} in the ledger but not in Ray")
        for group in ledger.groups.values()
        if group.group_id not in groups and group.state not in _CHANGING
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


async def audit(service: PlacementService, *, fix: bool) -> tuple[Difference, ...]:
    """Return how ledger, journal and Ray differ; with `fix`, remove what exists in Ray alone."""
    in_ray = Groups().found()  # a separate instance: the service's own keeps its state
    differences = compared(service, in_ray.keys(), actors_of_ours())
    return tuple([await _fixed(each) if fix and each.is_leak else each for each in differences])


async def tidy() -> None:
    """Remove every group and actor of ours except the ledger itself."""
    groups = Groups()
    for name in list(groups.found()):
        with suppress(GroupFailedError):  # the next audit reports it
            await groups.remove(name)
    for name in actors_of_ours():
        _kill(name)


def actors_of_ours() -> list[str]:
    """Return the names of the actors in our namespace with our prefix, except the ledger."""
    rows = ray.util.list_named_actors(all_namespaces=True)
    names = [row["name"] for row in rows if row["namespace"] == NAMESPACE]
    return [name for name in names if name.startswith(PREFIX) and name != LEDGER_NAME]


async def _fixed(difference: Difference) -> Difference:
    if difference.kind == "group":
        try:
            await Groups().remove(difference.name)
        except GroupFailedError:
            return difference
        return replace(difference, fixed=True)
    return replace(difference, fixed=_kill(difference.name))


def _kill(name: str) -> bool:
    try:
        ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
    except (ValueError, RayError):  # it is gone
        return False
    return True
