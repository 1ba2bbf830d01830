"""What an earlier run of a private server left is ended before its next worker starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Late, Pending, Running, Scheduled

from headgate.orchestration.own_server import clear_leftovers


@flow
def left_over() -> None:
    """Only runs of it are made; none is run."""


@pytest.mark.usefixtures("prefect")
async def test_runs_that_are_due_or_under_way_are_ended_and_later_ones_left() -> None:
    now = datetime.now(UTC)
    async with get_client() as client:
        states = {
            "due": Scheduled(scheduled_time=now - timedelta(seconds=1)),
            "late": Late(scheduled_time=now - timedelta(hours=1)),
            "later": Scheduled(scheduled_time=now + timedelta(hours=1)),
            "pending": Pending(),
            "running": Running(),
        }
        runs = {name: await client.create_flow_run(left_over, state=state) for name, state in states.items()}
        await clear_leftovers()
        ended = {name: (await client.read_flow_run(run.id)).state_name for name, run in runs.items()}
        await client.delete_flow_run(runs["later"].id)
    assert ended == {
        "due": "Cancelled",
        "late": "Cancelled",
        "later": "Scheduled",
        "pending": "Crashed",
        "running": "Crashed",
    }
