"""A campaign with an environment that is broken in many ways, and one that is not."""

from __future__ import annotations

import pytest

from headgate.config import Settings
from headgate.core import Model
from headgate.environments import registry_of
from headgate.models import SIMULATED, SimulationPlan, serve
from headgate.run import run_campaign
from headgate.sampling import StaticRoster
from headgate.storage import open_store

TASKS = 6
"""One for each way in which the environment is broken."""

ENTRY_POINTS = """
[headgate.environments]
single:broken = odd_plugin:single_broken

[headgate.environment_collections]
odd = odd_plugin:Behaviours
"""


@pytest.fixture
def installed(plugin):
    """The plugin, with what installers write beside a package."""
    metadata = plugin / "odd_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)


async def test_what_a_broken_environment_does_is_held_against_no_model_and_stops_no_other(installed, tmp_path):
    settings = Settings(
        environments=("odd:righ*", "single:broken"),
        environment_processes=1,
        environment_call_s=2.0,
        journal=tmp_path / "journal",
        store=str(tmp_path / "samples"),
    )
    simulation = SimulationPlan(mean_s=0.0, cv=0.0)
    async with serve(simulation=simulation, find_environment=registry_of(settings).environment) as endpoint:
        model = Model(SIMULATED, uid=0, base_url=endpoint.base_url)
        await run_campaign(settings, roster=StaticRoster([model]), instances=TASKS)
    columns = ["environment", "score", "error_kind"]
    rows = (await open_store(settings.store).scan(columns=columns)).frame.select(columns).rows()
    assert sorted(row for row in rows if row[0] == "odd:right") == [("odd:right", 1.0, None)] * TASKS
    broken = [row for row in rows if row[0] == "single:broken"]
    assert len(broken) >= TASKS
    assert set(broken) == {("single:broken", None, "environment")}
