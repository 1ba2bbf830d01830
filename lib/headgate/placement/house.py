"""The house: groups that are to be there, groups and pools that are not, and what a journal says of them."""

from __future__ import annotations

from headgate.placement.commands import RemoveGroup
from headgate.placement.group import Group, GroupState
from headgate.placement.life import Life
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.pool import GroupShape


def keep_house(life: Life, now: float) -> None:
    """Tear down what is broken, remove what is idle, close what is to be closed."""
    for group_id, deadline in list(life.groups.broken.items()):
        if deadline <= now and (group := life.book.groups.get(group_id)) is not None:
            _tear_down(life, group, now)
    idle_s = life.settings.idle_group_s
    for group in life.book.free_groups():
        if group.reserved is None and now - group.since >= idle_s:
            life.groups.remove(group, now)
    for name in list(life.closing):
        if not any(True for _ in life.book.groups_of(name)) and not life.book.placed.get(name):
            life.closing.discard(name)
            life.book.pools.pop(name, None)
            life.notes.changed_pools.add(name)


def reserve_group(life: Life, pool: str, index: int, shape: GroupShape, nodes: tuple[str, ...], now: float) -> None:
    """Have a reserved group made, as soon as what leaves its nodes is gone."""
    group = life.groups.add(pool, shape, index, nodes, now, None)
    if in_the_way := life.book.in_the_way(nodes):
        life.clearing[group.group_id] = in_the_way
    else:
        life.groups.create(group, now)


def retire(life: Life, group: Group, now: float) -> None:
    """Remove a group as soon as nobody holds it."""
    if group.state in {GroupState.FREE, GroupState.BROKEN} and group.holder is None:
        life.groups.remove(group, now)
    elif group.group_id in life.clearing:
        life.drop(group, now)
    elif group.state is not GroupState.REMOVING:
        life.book.leave(group)


def _tear_down(life: Life, group: Group, now: float) -> None:
    """Give up a group whose node did not come back."""
    holder = life.book.requests.get(group.holder or "")
    if holder is None:
        if group.state is not GroupState.REMOVING:
            life.groups.remove(group, now)
            life.notes.changed()
    elif holder.stage in {Stage.RUNNING, Stage.PLACING} and holder.begun:
        life.stop(holder, "node_lost", now)
    elif holder.stage in {Stage.CLEARING, Stage.PLACING}:
        life.back_in_line(holder, now)


def restore(life: Life, groups: list[Group], requests: list[Occupancy], now: float) -> None:
    """Take up journalled groups and requests; see `PlacementLedger.restore`."""
    for group in groups:
        if group.state is not GroupState.CREATING:
            group.heir = None
            life.book.add_group(group)
        else:
            life.notes.changed_groups.add(group.group_id)
    for request in requests:
        life.book.requests[request.request_id] = request
        _restore_request(life, request, now)
    for group in list(life.book.groups.values()):
        if group.state is GroupState.REMOVING:
            life.book.leave(group)
            life.notes.ask(RemoveGroup(group.group_id, group.epoch))
        elif group.holder is None and group.state is not GroupState.FREE:
            group.state = GroupState.FREE
            life.groups.touch(group, now)
    _restore_retired(life, now)


def _restore_request(life: Life, request: Occupancy, now: float) -> None:
    if request.stage.has_ended:
        return
    group = life.book.groups.get(request.group_id)
    request.victims, request.evicting = set(), set()
    runs = request.stage in {Stage.RUNNING, Stage.STOPPING, Stage.PLACING} and request.begun
    if group is not None and group.holder == request.request_id and runs:
        life.book.hold(request, group)
        if request.stage is Stage.STOPPING:
            life.stop(request, request.stop_reason, now)
        return
    if group is not None and group.holder == request.request_id:
        group.holder = None
    request.group_id = ""
    life.queue(request, now, "restored")


def _restore_retired(life: Life, now: float) -> None:
    """Go on with what was to go: pools that were being closed, and reserved groups that are wanted no more."""
    pools = life.book.pools.values()
    # The form that `close_pool` leaves: nothing can run in it, and nobody gives a pool this form otherwise.
    life.closing |= {
        pool.name for pool in pools if not pool.reserved and pool.max_dynamic == 0 and not pool.lend_reserved
    }
    for group in list(life.book.groups.values()):
        pool = life.book.pools.get(group.pool)
        is_wanted = pool is not None and (
            pool.name not in life.closing
            if group.reserved is None
            else group.shape in pool.reserved[group.reserved :][:1]
        )
        if not is_wanted and group.state is not GroupState.REMOVING:
            retire(life, group, now)
