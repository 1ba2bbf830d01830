"""Campaigns on environments that AgentGym servers serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from headgate.config import Settings
from headgate.core import Model, errors
from headgate.environments import registry_with, served_environments
from headgate.models import serve
from headgate.run import run_campaign, sampled_environments
from headgate.sampling import StaticRoster
from headgate.simulation import agentgym


def test_a_server_makes_its_environment_one_that_is_sampled() -> None:
    servers = {"sciworld": "http://127.0.0.1:9", "babyai": "http://127.0.0.1:9"}
    sampled = sampled_environments(Settings(agentgym_servers=servers))
    assert {"agentgym:sciworld-server", "agentgym:babyai-server", "agentgym:babyai", "affine:sat"} <= set(sampled)
    assert "agentgym:webshop-server" not in sampled


def test_without_its_server_an_environment_is_unknown() -> None:
    with pytest.raises(errors.UnknownEnvironmentError, match="'agentgym:sciworld-server' is not registered"):
        sampled_environments(Settings(environments=("agentgym:sciworld-server",)))


def test_a_server_of_what_agentgym_does_not_have_is_refused() -> None:
    with pytest.raises(errors.InvalidSettingError, match=r"'textcrat'.*did you mean 'textcraft'"):
        sampled_environments(Settings(agentgym_servers={"textcrat": "http://127.0.0.1:9"}))


async def test_a_campaign_plays_at_a_server_and_leaves_no_session(tmp_path: Path) -> None:
    simulated = agentgym.SimulatedServer("textcraft")
    async with TestServer(simulated.app) as server:
        settings = Settings(
            agentgym_servers={"textcraft": str(server.make_url(""))},
            environments=("agentgym:textcraft-server",),
            journal=tmp_path / "journal",
            store=str(tmp_path / "samples"),
        )
        found = registry_with(served_environments(settings))
        async with serve(find_environment=found.environment) as endpoint:
            options = {"headgate_task_header": True}
            model = Model("baseline-random", uid=0, base_url=endpoint.base_url, options=options)
            result = await run_campaign(settings, roster=StaticRoster([model]), instances=5)
    assert (result.samples, result.stored, result.open_tasks, result.stopped_early) == (5, 5, 0, False)
    (pair,) = result.status.pairs
    assert (pair.errors, pair.mean_score) == (0, 0.0)
    assert (simulated.created, simulated.open_sessions) == (5, ())
