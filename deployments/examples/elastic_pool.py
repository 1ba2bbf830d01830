"""Inference workers share a cluster with training: it takes their places, no request is lost, and they come back.

`python deployments/examples/elastic_pool.py` uses the Ray cluster of RAY_ADDRESS, else the one of this machine, else
one that it starts. The workers are those of `elastic_pool.yaml` beside it; any client of the OpenAI API can ask them.
"""
# ruff: noqa: INP001 - a script, and no package

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from headgate.elastic import WorkerState
from headgate.elastic.gateway import PoolFile, load_pool_file, running_gateway
from headgate.elastic.service import ElasticService, PoolStatus
from headgate.orchestration import placed_engines
from headgate.placement import Placement, PreemptionRules, amounts, connect

RULES = PreemptionRules(
    label_rules={"role": {"train": ("reward", "rollout"), "reward": ("rollout",)}},
    cancel_timeout_s=10.0,  # so long a worker has for requests that it is answering
)


class Rollout:
    """Stands for an engine: it says what it was asked, one word at a time."""

    def __init__(self, word_s: float = 0.05) -> None:
        self.word_s = word_s
        self.requests: dict[str, asyncio.Event] = {}

    async def wake(self) -> None:
        """A real one loads its weights here."""

    async def load(self) -> dict[str, Any]:
        """Tell what it has to do."""
        return {"running": len(self.requests), "slots": 4}

    async def chat(self, path: str, body: bytes, request_id: str) -> dict[str, Any]:  # noqa: ARG002 - the protocol's
        """Answer a chat, unless it is let go of before."""
        asked = json.loads(body)["messages"][-1]["content"]
        let_go = self.requests[request_id] = asyncio.Event()
        try:
            async with asyncio.timeout(self.word_s * len(asked.split())):
                await let_go.wait()
        except TimeoutError:
            message = {"role": "assistant", "content": asked}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return {"id": request_id, "object": "chat.completion", "created": 0, "model": "echo", "choices": [choice]}
        finally:
            del self.requests[request_id]
        raise RuntimeError("another worker answers it")

    async def abort(self, request_id: str) -> None:
        """Let go of a request."""
        if request_id in self.requests:
            self.requests[request_id].set()


class Training:
    """Stands for a trainer: it keeps its place until it is completed."""


async def play(placement: Placement, pool_file: PoolFile, say: Callable[[str], None]) -> None:
    """Have training take a place and give it back, and say what happens."""
    pool = placement.pool("elastic-example", quota=amounts(cpu=2))
    config, listening = pool_file.elastic_config, pool_file.gateway.model_copy(update={"port": 0})
    async with (
        placed_engines(config, pool_file.placement or {}, pool_file.actors) as placed,
        ElasticService(pool_file.pool.name, config, placed.engines, leases=placed.leases) as service,
        running_gateway(service, config, listening, model=pool_file.pool.model) as gateway,
        aiohttp.ClientSession(f"{gateway.base_url}/") as client,
    ):
        await service.until(both_answer)
        say("two workers hold the two places of the pool")

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(ask(client, f"the {number}th of eight requests, which takes its time " * 4))
            await service.until(lambda status: status.running == 8)
            wanted = {"resources": amounts(cpu=1), "priority": 9, "labels": {"role": "train"}}
            training = pool.submit(Training, **wanted, method=None)
            await asyncio.to_thread(training.wait_running, 60)
            say("training has one of them: its worker left")
        counts = service.status().counts
        say(f"{counts.served} requests were answered, {counts.handed_over} by the other worker, {counts.lost} lost")

        training.complete()
        await service.until(both_answer)
        say("training has ended, and both workers answer again")
    pool.close()


async def ask(client: aiohttp.ClientSession, text: str) -> None:
    """Ask for a chat as any client does."""
    body = {"model": "echo", "messages": [{"role": "user", "content": text}]}
    async with client.post("chat/completions", json=body, raise_for_status=True) as answer:
        assert (await answer.json())["choices"][0]["message"]["content"] == text


def both_answer(status: PoolStatus) -> bool:
    """Tell whether both workers take requests."""
    return status.count(WorkerState.ACTIVE) == 2


def main() -> None:
    """Play it on the cluster that there is."""
    pool_file = load_pool_file(Path(__file__).with_suffix(".yaml"))
    with connect(log_to_driver=False) as placement:
        kept = placement.rules()
        placement.set_rules(RULES)
        try:
            asyncio.run(play(placement, pool_file, lambda said: print(said, flush=True)))
        finally:
            placement.set_rules(kept)


if __name__ == "__main__":
    main()
