"""A ledger of journalled rows: what ran is taken to run, what was being prepared is prepared anew."""

from __future__ import annotations

from headgate.placement.commands import RemoveGroup
from headgate.placement.group import Group, GroupState
from headgate.placement.house import retire
from headgate.placement.life import Life
from headgate.placement.occupancy import Occupancy, Stage


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
