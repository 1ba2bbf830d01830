"""The simulated AgentGym server: what its faults do to calls."""

from __future__ import annotations

import asyncio

from aiohttp.test_utils import TestClient, TestServer

from headgate.simulation.agentgym import Fault, SimulatedServer


async def test_a_call_that_took_effect_before_it_hung_is_carried_out_once_and_answered_as_such() -> None:
    simulated = SimulatedServer("babyai")
    async with TestClient(TestServer(simulated.app)) as client:
        session = (await (await client.post("/create", json={})).json())["id"]
        simulated.plan(Fault("/close", "hang", is_carried_out=True))
        closing = asyncio.create_task(client.post("/close", json={"id": session}))
        await simulated.is_hanging.wait()
        assert simulated.open_sessions == ()
        simulated.let_go()
        assert await (await closing).json() is True
