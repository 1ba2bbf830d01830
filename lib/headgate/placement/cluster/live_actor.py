"""The Ray actor behind work in a process of its own, for drivers that call it, name it or pass it on as one."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from headgate.placement.cluster.placed import PlacedWork
from headgate.placement.errors import PlacementLostError


def actor_of(work: PlacedWork) -> Any:
    """Return the actor handle of work that runs in a process of its own; of its current start.

    Raises:
        PlacementLostError: it does not run.
    """
    members = work.members
    if not members:
        raise PlacementLostError(f"The actor of {work.request_id} could not be made")
    return members[0]._handle  # noqa: SLF001 - an object of this package


def is_made(actor: Any, timeout_s: float) -> bool:
    """Wait until the constructor of an actor has returned; False when it raised, True also when it takes longer."""
    try:
        ray.get(actor.__ray_ready__.remote(), timeout=timeout_s)
    except GetTimeoutError:
        return True
    except RayError:
        return False
    return True


def driver_namespace() -> str:
    """Return the namespace in which this driver finds named actors."""
    return str(ray.get_runtime_context().namespace)
