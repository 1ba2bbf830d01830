"""A real LiteLLM proxy that refuses, in front of the baselines. Runs where LITELLM_COMMAND names its program."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from headgate.config import Settings
from headgate.core import Message, Model, Secret, events
from headgate.environments import environment
from headgate.models import TASK_HEADER_OPTION, ChatClient, serve
from headgate.net.listener import free_port
from headgate.run.assembly import run_source
from headgate.run.matrix import MatrixTaskProvider
from headgate.sampling import StaticRoster
from headgate.storage import open_store
from headgate.telemetry import Recorded

PROGRAM = os.environ.get("LITELLM_COMMAND", "")
WINDOW_S = 20
"""In place of LiteLLM's minute: what it tells as a limit per minute is one per window, which is refused beyond."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAM, reason="LITELLM_COMMAND names no program of LiteLLM's proxy"),
]

KEYS = """
from litellm.proxy._types import UserAPIKeyAuth

async def check(request, api_key):
    requests, tokens = (int(n) for n in api_key.split("-")[1:])
    return UserAPIKeyAuth(api_key=api_key, rpm_limit=requests or None, tpm_limit=tokens or None)
"""


@asynccontextmanager
async def proxy(folder: Path, backend: str, *, has_batches: bool) -> AsyncIterator[str]:
    """Give the address of a proxy; a key `sk-REQUESTS-TOKENS` has these limits, 0 for none."""
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": backend, "api_key": "none"}}
        for name in ("baseline-solver", "baseline-judge")
    ]
    config: dict[str, Any] = {
        "model_list": models,
        "general_settings": {"custom_auth": "keys.check", "forward_client_headers_to_llm_api": True},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    if has_batches:
        config["files_settings"] = [{"custom_llm_provider": "openai", "api_base": backend, "api_key": "none"}]
    (folder / "config.yaml").write_bytes(orjson.dumps(config))  # JSON is YAML
    (folder / "keys.py").write_text(KEYS)
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "LITELLM_RATE_LIMIT_WINDOW_SIZE": str(WINDOW_S),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": "sk-a-key-of-more-than-thirty-two-characters",
        "OPENAI_BASE_URL": backend,
        "OPENAI_API_KEY": "none",
    }
    arguments = ("--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False")
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, *arguments, cwd=folder, env=environ, stdout=log, stderr=log
        )
        try:
            async with asyncio.timeout(300), aiohttp.ClientSession() as http:
                while process.returncode is None:
                    try:
                        async with http.get(f"http://127.0.0.1:{port}/health/liveliness") as answer:
                            if answer.status == 200:
                                break
                    except aiohttp.ClientError:
                        await asyncio.sleep(0.5)
            assert process.returncode is None, (folder / "log").read_text()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


@dataclass
class Told:
    """What a run told."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ends: list[events.BatchEnded] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.handlers = {events.RequestFinished: self._request, events.BatchEnded: self._batch}

    def _request(self, recorded: Recorded[Any]) -> None:
        self.outcomes[recorded.event.outcome] += 1

    def _batch(self, recorded: Recorded[Any]) -> None:
        self.ends.append(recorded.event)

    def close(self) -> None:
        """A sink of events."""


async def sampled(folder: Path, base_url: str, key: str, tasks: int, lane: str) -> tuple[Told, list[dict[str, Any]]]:
    """Run some tasks; return what was told, and the stored samples."""
    told, store = Told(), open_store(str(folder / "samples"))
    options = ((TASK_HEADER_OPTION, True),)
    model = Model("baseline-solver", base_url=base_url, api_key=Secret(key), options=options, lane=lane)
    settings = Settings(
        journal=folder / "journal",
        sink_max_wait=0.2,
        lane_batch_wait_s=0.2,
        lane_poll_s=0.1,
        num_evaluation_workers=8,
    )
    source = MatrixTaskProvider(["affine:sat"], tasks)
    await run_source(
        settings,
        roster=StaticRoster([model]),
        environments={"affine:sat": environment("affine:sat")},
        store=store,
        source=source,
        judging=None,
        stop_when_idle=True,
        sinks=[told],
    )
    return told, (await store.scan()).frame.to_dicts()


async def test_a_proxy_that_limits_minutes_is_asked_no_more_than_it_allows_and_has_batches(tmp_path: Path) -> None:
    async with serve() as baselines, proxy(tmp_path, baselines.base_url, has_batches=True) as base_url:
        model = Model("baseline-judge", base_url=base_url, api_key=Secret("sk-40-4000"))
        async with ChatClient() as client:
            reply = await client.chat(model, (Message("user", "one two"),))
        assert {note.unit: note.limit for note in reply.told} == {0: 40.0, 3: 4_000.0}

        (tmp_path / "now").mkdir()
        told, samples = await sampled(tmp_path / "now", base_url, "sk-30-0", 40, "now")
        assert [sample["score"] for sample in samples] == [1.0] * 40
        assert told.outcomes["success"] == 40
        assert told.outcomes["rate_limited"] <= 10, told.outcomes

        (tmp_path / "batch").mkdir()
        told, samples = await sampled(tmp_path / "batch", base_url, "sk-0-0", 40, "batch")
        assert [(sample["score"], sample["lane"]) for sample in samples] == [(1.0, "batch")] * 40, told.ends
        assert [(end.status, end.answered) for end in told.ends] == [("completed", 40)]
