"""Reports the actual state of the cluster to the ledger: on start, and every second from then on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headgate.core import until_set
from headgate.core.errors import JournalError
from headgate.core.tasks import cancelled
from headgate.placement.amounts import NOTHING, Amounts
from headgate.placement.ledger import PlacementLedger
from headgate.placement.pool import GroupState
from headgate.placement.request import Stage
from headgate.placement.service.protocol import Executor, GroupFailedError, Running
from headgate.placement.service.steps import Steps

TRIES: Final = 60
"""Number of attempts to remove an unknown group, over at least five minutes; then an operator must look into it."""

LOOK_S: Final = 1.0
"""How often the nodes are read; also at once after a failure."""

_GROUPS_EVERY: Final = 5
_NOT_STANDING: Final = frozenset({GroupState.CREATING, GroupState.REMOVING})
_log = logging.getLogger("headgate.placement")


class Reconciler:
    """Reports the state of the cluster to the ledger, and removes groups unknown to it. Owned by the service.

    A group that cannot be removed is logged at the first try and when it is given up, not in between.
    """

    def __init__(self, steps: Steps, executor: Executor) -> None:
        self._steps = steps
        self._executor = executor
        self._orphans: dict[str, int] = {}
        self.soon = asyncio.Event()  # set when something in the cluster has failed, to read its state now
        self._looking: asyncio.Task[None] | None = None
        self._removing: asyncio.Task[None] | None = None

    async def start(self, take_up: Callable[[Running], None]) -> None:
        """Remove groups unknown to the journal, adopt running work, report what is lost, and start the periodic checks.

        The ledger gets everything in one step at the end, so that it decides nothing before all of it is known.
        """
        ledger = self._steps.ledger
        existing = await self._executor.existing_groups()
        for group_id in sorted(existing.keys() - ledger.groups.keys()):
            why = await self._why_not_removed(group_id)
            if why:
                self._orphans[group_id] = 1
                _log.warning("Group %s, unknown to the journal, could not be removed; trying again: %s", group_id, why)
        adopted = await self._adopted()
        nodes = await self._executor.nodes(ours(ledger))
        missing = [
            group.group_id
            for group in ledger.groups.values()
            if group.group_id not in existing and group.state is not GroupState.REMOVING
        ]

        def act(ledger: PlacementLedger, now: float) -> None:
            ledger.see_nodes(nodes, now)
            for running in adopted.values():
                ledger.work_started(running.request_id, running.epoch, now)
            for request in list(ledger.requests.values()):
                if not request.begun or request.stage.has_ended or request.request_id in adopted:
                    continue
                if request.stage is Stage.PLACING:
                    ledger.work_not_started(request.request_id, request.epoch, now)
                else:
                    ledger.work_lost(request.request_id, request.epoch, now, "it was no longer running after a restart")
            for group_id in missing:
                ledger.group_lost(group_id, "it was no longer in the cluster after a restart", now)

        for running in adopted.values():
            take_up(running)  # not earlier: the end of work would make the ledger decide before it knows the rest
        self._steps.do(act)
        self._looking = asyncio.get_running_loop().create_task(self._look_on())

    async def look_at_nodes(self) -> None:
        """Report the current nodes to the ledger, if they have changed."""
        nodes = await self._executor.nodes(ours(self._steps.ledger))
        if {node.node_id: node for node in nodes} != self._steps.ledger.holdings.nodes:
            self._steps.do(lambda ledger, now: ledger.see_nodes(nodes, now))

    async def close(self) -> None:
        """End; legal twice."""
        await cancelled(*(task for task in (self._looking, self._removing) if task is not None))

    async def _look_on(self) -> None:
        turn = 0
        while True:
            await until_set(self.soon, LOOK_S)
            self.soon.clear()
            turn += 1
            try:
                await self.look_at_nodes()
                if turn % _GROUPS_EVERY == 0:
                    await self._look_at_groups()
                    if self._orphans and (self._removing is None or self._removing.done()):
                        self._removing = asyncio.get_running_loop().create_task(self._remove_orphans())
                self._steps.forget_old()
            except JournalError:
                return  # the service ends
            except Exception:  # noqa: BLE001 - reported; the next read may succeed
                _log.exception("The cluster could not be read; trying again")

    async def _look_at_groups(self) -> None:
        before = _standing(self._steps.ledger)
        existing = await self._executor.existing_groups()
        # Known both before and after the read: a group that was created or removed meanwhile has not vanished.
        vanished = before & _standing(self._steps.ledger) - existing.keys()

        def act(ledger: PlacementLedger, now: float) -> None:
            for group_id in sorted(vanished):
                ledger.group_lost(group_id, "its placement group has vanished from the cluster", now)

        if vanished:
            self._steps.do(act)

    async def _remove_orphans(self) -> None:
        for group_id in sorted(self._orphans):
            why = await self._why_not_removed(group_id)
            self._orphans[group_id] += 1
            if not why:
                del self._orphans[group_id]
                _log.info("Group %s, unknown to the journal, is removed", group_id)
            elif self._orphans[group_id] >= TRIES:
                del self._orphans[group_id]
                _log.error(
                    "Group %s, unknown to the journal, could not be removed in %d tries; its resources are lost: %s. "
                    "Look with `ray list placement-groups`; `headgate placement audit --fix` tries it once more.",
                    group_id,
                    TRIES,
                    why,
                )

    async def _why_not_removed(self, group_id: str) -> str:
        """Remove a group; return why it could not be removed, empty once it is gone."""
        try:
            await self._executor.remove_group(group_id)
        except GroupFailedError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - reported by the caller; Ray may answer the next time
            return f"{type(error).__name__}: {error}"
        return ""

    async def _adopted(self) -> dict[str, Running]:
        """Return the work that still runs, by request id."""
        found: dict[str, Running] = {}
        for request in list(self._steps.ledger.requests.values()):
            if request.begun and not request.stage.has_ended:
                running = await self._executor.adopt(request.group_id, self._steps.journal.order(request))
                if running is not None:
                    found[request.request_id] = running
        return found


def ours(ledger: PlacementLedger) -> dict[str, Amounts]:
    """Return what the ledger's groups take on each node."""
    taken: dict[str, Amounts] = {}
    for group in ledger.groups.values():
        for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
            taken[node] = taken.get(node, NOTHING) + bundle
    return taken


def _standing(ledger: PlacementLedger) -> set[str]:
    return {group.group_id for group in ledger.groups.values() if group.state not in _NOT_STANDING}
