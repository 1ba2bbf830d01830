"""What the page on policy servers shows is what happens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np

from headgate.jobqueue.policy import PolicyClient, PolicyServer, ScriptedPolicy, load_simulation, run_episode
from tests.docs.pages import blocks

PAGE = "docs/how-to/challenge.md"


def example(containing: str) -> dict[str, Any]:
    block = next(b for b in blocks("python") if b.page == PAGE and containing in b.code)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block.code, f"{block.page}:{block.line}", "exec", dont_inherit=True), names)
    return names


def test_the_result_of_the_page_is_the_result() -> None:
    shown = next(json.loads(b.code) for b in blocks("json") if b.page == PAGE and b.title == "result.json")
    task, instance = shown.pop("task"), shown.pop("instance")
    assert shown == run_episode(ScriptedPolicy(), load_simulation(task, instance))


async def test_the_policy_of_the_page_is_served() -> None:
    policy = example("class Forward")["Forward"]()
    async with PolicyServer(policy) as server, PolicyClient("127.0.0.1", server.port) as client:
        assert client.metadata == {"policy": "always-forward"}
        assert np.array_equal(await client.act({}), [2])


async def test_the_client_of_the_page_evaluates() -> None:
    async with PolicyServer(ScriptedPolicy()) as server:
        evaluate = example("def evaluate")["evaluate"]
        assert (await asyncio.to_thread(evaluate, "127.0.0.1", server.port))["q_score"] == 1.0
