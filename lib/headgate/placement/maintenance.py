"""Groups that are to be there, groups and pools that are not, what a journal says of them, and what must hold."""

from __future__ import annotations

from headgate.placement.lifecycle import Lifecycle
from headgate.placement.outbox import RemoveGroup
from headgate.placement.pool import Group, GroupShape, GroupState
from headgate.placement.request import Occupancy, Stage


def keep_house(life: Lifecycle, now: float) -> None:
    """Tear down what is broken, remove what is idle, close what is to be closed."""
    for group_id, deadline in list(life.groups.broken.items()):
        if deadline <= now and (group := life.holdings.groups.get(group_id)) is not None:
            _tear_down(life, group, now)
    idle_s = life.settings.idle_group_s
    for group in life.holdings.free_groups():
        if group.reserved is None and now - group.since >= idle_s:
            life.groups.remove(group, now)
    for name in list(life.closing):
        if not any(True for _ in life.holdings.groups_of(name)) and not life.holdings.placed.get(name):
            life.closing.discard(name)
            life.holdings.pools.pop(name, None)
            life.outbox.changed_pools.add(name)


def reserve_group(
    life: Lifecycle, pool: str, index: int, shape: GroupShape, nodes: tuple[str, ...], now: float
) -> None:
    """Have a reserved group made, as soon as what leaves its nodes is gone."""
    group = life.groups.add(pool, shape, index, nodes, now, None)
    if in_the_way := life.holdings.in_the_way(nodes):
        life.clearing[group.group_id] = in_the_way
    else:
        life.groups.create(group, now)


def retire(life: Lifecycle, group: Group, now: float) -> None:
    """Remove a group as soon as nobody holds it."""
    if group.state in {GroupState.FREE, GroupState.BROKEN} and group.holder is None:
        life.groups.remove(group, now)
    elif group.group_id in life.clearing:
        life.drop(group, now)
    elif group.state is not GroupState.REMOVING:
        life.holdings.leave(group)


def _tear_down(life: Lifecycle, group: Group, now: float) -> None:
    """Give up a group whose node did not come back."""
    holder = life.holdings.requests.get(group.holder or "")
    if holder is None:
        if group.state is not GroupState.REMOVING:
            life.groups.remove(group, now)
            life.outbox.changed()
    elif holder.stage in {Stage.RUNNING, Stage.PLACING} and holder.begun:
        life.stop(holder, "node_lost", now)
    elif holder.stage in {Stage.CLEARING, Stage.PLACING}:
        life.back_in_line(holder, now)


def restore(life: Lifecycle, groups: list[Group], requests: list[Occupancy], now: float) -> None:
    """Take up journalled groups and requests; see `PlacementLedger.restore`."""
    for group in groups:
        if group.state is not GroupState.CREATING:
            group.heir = None
            life.holdings.add_group(group)
        else:
            life.outbox.changed_groups.add(group.group_id)
    for request in requests:
        life.holdings.requests[request.request_id] = request
        _restore_request(life, request, now)
    for group in list(life.holdings.groups.values()):
        if group.state is GroupState.REMOVING:
            life.holdings.leave(group)
            life.outbox.ask(RemoveGroup(group.group_id, group.epoch))
        elif group.holder is None and group.state is not GroupState.FREE:
            group.state = GroupState.FREE
            life.groups.touch(group, now)
    _restore_retired(life, now)


def _restore_request(life: Lifecycle, request: Occupancy, now: float) -> None:
    if request.stage.has_ended:
        return
    group = life.holdings.groups.get(request.group_id)
    request.victims, request.evicting = set(), set()
    runs = request.stage in {Stage.RUNNING, Stage.STOPPING, Stage.PLACING} and request.begun
    if group is not None and group.holder == request.request_id and runs:
        life.holdings.hold(request, group)
        if request.stage is Stage.STOPPING:
            life.stop(request, request.stop_reason, now)
        return
    if group is not None and group.holder == request.request_id:
        group.holder = None
    request.group_id = ""
    life.enqueue(request, now, "restored")


def _restore_retired(life: Lifecycle, now: float) -> None:
    """Go on with what was to go: pools that were being closed, and reserved groups that are wanted no more."""
    pools = life.holdings.pools.values()
    # The form that `close_pool` leaves: nothing can run in it, and nobody gives a pool this form otherwise.
    life.closing |= {
        pool.name for pool in pools if not pool.reserved and pool.max_dynamic == 0 and not pool.lend_reserved
    }
    for group in list(life.holdings.groups.values()):
        pool = life.holdings.pools.get(group.pool)
        is_wanted = pool is not None and (
            pool.name not in life.closing
            if group.reserved is None
            else group.shape in pool.reserved[group.reserved :][:1]
        )
        if not is_wanted and group.state is not GroupState.REMOVING:
            retire(life, group, now)


def validate(life: Lifecycle) -> None:
    """Assert that groups, holders and heirs agree, and that nobody waits for nothing."""
    for group in life.holdings.groups.values():
        holder = life.holdings.requests.get(group.holder or "")
        if group.state in {GroupState.FREE, GroupState.REMOVING}:
            assert group.holder is None, f"{group.group_id} is {group.state} and held by {group.holder}"
            is_free = group.state is GroupState.FREE
            assert is_free != (group.group_id in life.holdings.leaving), f"{group.group_id} is {group.state}, leaving"
        if group.holder is not None:
            assert holder is not None, f"{group.group_id}: holder {group.holder} is not known"
            assert holder.group_id == group.group_id, f"{group.holder} holds {holder.group_id}"
        if group.heir is not None:
            heir = life.holdings.requests[group.heir]
            assert heir.group_id == group.group_id, f"{group.heir} waits for {heir.group_id}"
            assert heir.stage is Stage.CLEARING, f"{group.heir} waits for a group but is {heir.stage}"
    for request in life.holdings.requests.values():
        waits = request.stage is Stage.WAITING
        assert waits == (request.request_id in life.queue), f"{request.request_id}: {request.stage}, line"
        if request.stage is Stage.CLEARING:
            assert request.victims or request.evicting, f"{request.request_id} waits for nothing"
        for victim in request.victims:
            assert life.holdings.requests[victim].stage is Stage.STOPPING, f"{victim} is not being stopped"
