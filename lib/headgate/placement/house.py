"""The house: groups that are to be there, and groups and pools that are not."""

from __future__ import annotations

from headgate.placement.group import Group, GroupState
from headgate.placement.life import Life
from headgate.placement.occupancy import Stage
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
