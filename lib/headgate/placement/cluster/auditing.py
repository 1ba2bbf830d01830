"""The audit in the ledger's process: journal, ledger and Ray are compared, and leaks removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import ray
from ray.exceptions import RayError

from headgate.placement.cluster.audit import Difference, compared
from headgate.placement.cluster.connecting import NAMESPACE
from headgate.placement.cluster.groups import PREFIX, Groups
from headgate.placement.cluster.ray_hands import RayHands
from headgate.placement.group import GroupState
from headgate.placement.service.hands import GroupFailedError
from headgate.placement.service.service import PlacementService

_LEDGER: Final = f"{PREFIX}placement"
_CHANGING: Final = frozenset({GroupState.CREATING, GroupState.REMOVING})


async def audit(service: PlacementService, looks: Callable[[], RayHands], *, fix: bool) -> tuple[Difference, ...]:
    """Return how ledger, journal and Ray differ; with `fix`, what is in Ray alone is removed."""
    in_ray = await looks().existing_groups()  # hands of its own: those of the service keep what they know
    differences = compared(service, in_ray.keys(), actors_of_ours(), _CHANGING)
    return tuple([await _fixed(each) if fix and each.is_leak else each for each in differences])


async def tidy() -> None:
    """Remove every group and actor of ours except the ledger itself."""
    groups = Groups()
    for name in list(groups.found()):
        with suppress(GroupFailedError):  # told by the next audit
            await groups.remove(name)
    for name in actors_of_ours():
        _kill(name)


def actors_of_ours() -> list[str]:
    """Return the names of the actors in our namespace with our prefix, the ledger left out."""
    rows = ray.util.list_named_actors(all_namespaces=True)
    names = [row["name"] for row in rows if row["namespace"] == NAMESPACE]
    return [name for name in names if name.startswith(PREFIX) and name != _LEDGER]


async def _fixed(difference: Difference) -> Difference:
    if difference.kind == "group":
        groups = Groups()
        groups.found()
        try:
            await groups.remove(difference.name)
        except GroupFailedError:
            return difference
        return difference.as_fixed()
    return difference.as_fixed() if _kill(difference.name) else difference


def _kill(name: str) -> bool:
    try:
        ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
    except (ValueError, RayError):  # it is gone
        return False
    return True
