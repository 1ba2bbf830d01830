"""What a run with a judge answers about itself while it runs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.config import Settings
from headgate.core import ErrorKind, SystemClock, errors, task_id_of
from headgate.core.events import MonitorStarted
from headgate.core.status import CampaignStatus
from headgate.models import FaultPlan, serve
from headgate.run import Run, run_judged
from tests.run.judged.judged_world import EXPLAIN, JudgedWorld, Providers, model, storm
from tests.telemetry.memory import MemorySink

PROGRAM = (sys.executable, "-m", "headgate.cli")


def sample_id(number: int, campaign: str = "main", name: str = "solver") -> str:
    return task_id_of(f"{name}@main", EXPLAIN, number, "sample", campaign)


def asked_at(
    world: JudgedWorld, providers: Providers, at: float, instances: int = 20, **settings: Any
) -> dict[str, Any]:
    """Run, and return by sample number what explained each at a time, and what else was answered then."""
    told: dict[str, Any] = {}

    async def ask(run: Run) -> None:
        await asyncio.sleep(at)
        told["now"] = run.now()
        told["tasks"] = run.inquiry.tasks(None, None, 1_000)
        told["health"] = run.inquiry.health()
        told["capacity"] = run.inquiry.capacity()
        told["why"] = [await run.inquiry.explain(sample_id(number)) for number in range(instances)]
        with pytest.raises(errors.NotFoundError, match="is not open in campaign main"):
            await run.inquiry.explain("t-" + 24 * "0")

    world.go([model("solver")], providers, instances=instances, during=ask, **settings)
    return told


def test_a_sample_is_explained_by_the_stage_that_holds_it(tmp_path: Path) -> None:
    told = asked_at(JudgedWorld(tmp_path), Providers(service_s=2.0), 3.0, max_unjudged=12)
    why = told["why"]
    assert all(found.task_id == sample_id(number) for number, found in enumerate(why))
    assert {found.gate for found in why if found.reason.startswith("its judge is running")} == {"dependency"}
    assert {found.gate for found in why if found.reason.startswith("its judge is queued")} == {"model_parallel"}
    assert {found.gate for found in why if found.reason.startswith("its rollout is running")} == {"dependency"}
    assert {found.state for found in why if found.gate == "frontier"} == {"open"}


def test_a_judge_in_a_storm_is_named_with_the_time_of_its_end(tmp_path: Path) -> None:
    world = JudgedWorld(tmp_path)
    told = asked_at(world, Providers(judge=storm(0.0, 30.0)), 20.0)
    held = [found for found in told["why"] if found.until is not None]
    assert held
    assert all(0 < found.until - told["now"] < 120 for found in held)
    assert all(found.state == "waiting" for found in held)


def test_a_judge_whose_quota_is_used_up_is_told_as_that(tmp_path: Path) -> None:
    told = asked_at(JudgedWorld(tmp_path), Providers(judge=lambda at: ErrorKind.QUOTA if at < 30.0 else None), 20.0)
    waiting = [found for found in told["why"] if found.reason.startswith("its judge is queued")]
    assert waiting
    assert all("; a judgement has failed: " in found.reason for found in waiting)


def test_open_samples_and_counts_are_told_as_they_are(tmp_path: Path) -> None:
    told = asked_at(JudgedWorld(tmp_path), Providers(service_s=2.0), 3.0)
    assert {row["stage"] for row in told["tasks"]} == {"sample"}
    states = [row["state"] for row in told["tasks"]]
    assert states == sorted(states, key=lambda state: state != "running")
    health = told["health"]
    assert (health.workers, health.open_tasks, health.state) == (8, len(states), "running")
    assert health.frontier_target is not None
    assert {key.key for key in health.requests} == {"http://solver/v1 solver", "http://judge/v1 judge:coverage"}
    plan = told["capacity"]
    assert plan.configured["max_parallel judge:coverage@main"].value == 4


@pytest.fixture
def places(tmp_path: Path, roster_file: Path) -> dict[str, Any]:
    return {"roster": str(roster_file), "store": str(tmp_path / "samples"), "journal": tmp_path / "journal"}


class Held(SystemClock):
    """The time of a slow endpoint that gives one answer at once, and the others when it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self._answers = 0

    async def sleep(self, seconds: float) -> None:
        self._answers += 1
        if self._answers > 1:
            await self.let_go.wait()


async def test_the_monitoring_api_of_a_judged_run_answers_as_that_of_a_campaign(places) -> None:
    memory, held = MemorySink(), Held()
    told: dict[str, Any] = {}
    async with serve(FaultPlan.parse("slow:mean_s=0.5"), clock=held) as judge, httpx.AsyncClient() as client:

        async def look(status: CampaignStatus) -> None:
            started = [one.event for one in memory.recorded if isinstance(one.event, MonitorStarted)]
            if told or not started or not status.unjudged or not status.samples:
                return
            address = told["address"] = started[0].address
            for part in ("", "/summary", "/models", "/requests", "/health", "/capacity"):
                told[f"status{part}"] = (await client.get(f"{address}/status{part}")).raise_for_status().json()
            where = {"model": "solver@main", "limit": "1"}
            told["open"] = (await client.get(f"{address}/status/tasks", params=where)).raise_for_status().json()
            told["metrics"] = (await client.get(f"{address}/metrics")).text
            words = ("why", "solver", EXPLAIN, "7", "--url", address, "--json")
            process = await asyncio.create_subprocess_exec(*PROGRAM, *words, stdout=asyncio.subprocess.PIPE)
            told["why"] = json.loads((await process.communicate())[0])
            held.let_go.set()

        settings = Settings(
            **places,
            judge_model="baseline-judge",
            judge_url=judge.base_url,
            judge_parallel=1,
            enable_monitoring=True,
            monitor_port=0,
        )
        result = await run_judged(settings, instances=8, on_status=look, every_s=0.05, sinks=[memory])
    assert (result.samples, result.scored) == (16, 16)
    summary = told["status/summary"]
    assert (summary["campaign"], summary["state"], summary["models"]["active"]) == ("main", "running", 2)
    assert {one["model"] for one in told["status/models"]["models"]} == {"solver", "random"}
    assert sum(pair["due"] for pair in told["status"]["pairs"]) == 16
    assert told["status"]["unjudged"] > 0
    assert [pair["mean_score"] for pair in told["status"]["judged"] if pair["scored"]]
    assert told["status/health"]["health"]["workers"] == settings.num_evaluation_workers
    assert any(key["models"] == ["judge:baseline-judge@main"] for key in told["status/requests"]["requests"])
    assert [task["model"] for task in told["open"]["tasks"]] == ["solver@main"]
    assert (told["why"]["task_id"], told["why"]["asked"]) == (sample_id(7), told["address"])
    assert told["why"]["state"] in {"waiting", "open"}
    assert "headgate_request_cap{" in told["metrics"]
    assert "headgate_samples_total{" in told["metrics"]


async def test_health_is_told_while_a_file_of_events_listens(places, tmp_path: Path) -> None:
    async with serve(FaultPlan.parse("slow:mean_s=0.3")) as judge:
        settings = Settings(
            **places,
            judge_model="baseline-judge",
            judge_url=judge.base_url,
            events_file=str(tmp_path / "events.jsonl"),
            health_interval_s=0.01,
        )
        await run_judged(settings, instances=4)
    told = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert "health_reported" in told
