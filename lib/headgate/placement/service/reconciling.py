"""Reconciling: after a start, the ledger learns what of its journal is still true in the cluster."""

from __future__ import annotations

from headgate.placement.group import GroupState
from headgate.placement.ledger import PlacementLedger
from headgate.placement.occupancy import Stage
from headgate.placement.service.carrying import Carrier, order_of
from headgate.placement.service.hands import Hands, Running
from headgate.placement.service.looking import Strays, ours
from headgate.placement.service.steps import Steps


async def reconcile(steps: Steps, carrier: Carrier, hands: Hands, strays: Strays) -> None:
    """Remove groups that the journal does not know, take running work up again, and tell the ledger what is lost.

    Nothing is decided before all of it is known: one step at the end tells the ledger everything.
    """
    ledger = steps.ledger
    existing = await hands.existing_groups()
    for group_id in sorted(existing.keys() - ledger.groups.keys()):
        await strays.remove(group_id)
    adopted = await _adopted(steps, hands)
    nodes = await hands.nodes(ours(ledger))
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
        carrier.take_up(running)  # not earlier: work that ends would have the ledger decide before it knows the rest
    steps.do(act)


async def _adopted(steps: Steps, hands: Hands) -> dict[str, Running]:
    """Return what still runs."""
    found: dict[str, Running] = {}
    for request in list(steps.ledger.requests.values()):
        if not request.begun or request.stage not in {Stage.PLACING, Stage.RUNNING, Stage.STOPPING}:
            continue
        running = await hands.adopt(request.group_id, order_of(request, steps.journal))
        if running is not None:
            found[request.request_id] = running
    return found
