"""What must hold between groups and requests after every step."""

from __future__ import annotations

from headgate.placement.group import GroupState
from headgate.placement.life import Life
from headgate.placement.occupancy import Stage


def validate(life: Life) -> None:
    """Assert that groups, holders and heirs agree, and that nobody waits for nothing."""
    for group in life.book.groups.values():
        holder = life.book.requests.get(group.holder or "")
        if group.state in {GroupState.FREE, GroupState.REMOVING}:
            assert group.holder is None, f"{group.group_id} is {group.state} and held by {group.holder}"
            is_free = group.state is GroupState.FREE
            assert is_free != (group.group_id in life.book.leaving), f"{group.group_id} is {group.state}, leaving"
        if group.holder is not None:
            assert holder is not None, f"{group.group_id}: holder {group.holder} is not known"
            assert holder.group_id == group.group_id, f"{group.holder} holds {holder.group_id}"
        if group.heir is not None:
            heir = life.book.requests[group.heir]
            assert heir.group_id == group.group_id, f"{group.heir} waits for {heir.group_id}"
            assert heir.stage is Stage.CLEARING, f"{group.heir} waits for a group but is {heir.stage}"
    for request in life.book.requests.values():
        waits = request.stage is Stage.WAITING
        assert waits == (request.request_id in life.line), f"{request.request_id}: {request.stage}, line"
        if request.stage is Stage.CLEARING:
            assert request.victims or request.evicting, f"{request.request_id} waits for nothing"
        for victim in request.victims:
            assert life.book.requests[victim].stage is Stage.STOPPING, f"{victim} is not being stopped"
