"""`headgate why` against a real running campaign, and against what one left behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from headgate.config import Settings
from headgate.core import events, task_id_of
from headgate.models import FaultPlan, serve
from headgate.run import run_campaign
from tests.cli.conftest import Command

ENVIRONMENT = "affine:sat-hard"


@dataclass
class Running:
    """A campaign in a thread: one worker, and an endpoint that does not answer."""

    address: str
    roster: Path

    def tasks(self) -> list[dict[str, object]]:
        found = httpx.get(f"{self.address}/status/tasks", trust_env=False).json()["tasks"]
        return list(found)


class Seen:
    """A sink that knows the monitoring API's address and whether a task runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.address, self.task_started = loop, "", asyncio.Event()

    @property
    def handlers(self):
        return {
            events.MonitorStarted: lambda recorded: setattr(self, "address", recorded.event.address),
            events.TaskStarted: lambda _: self.loop.call_soon_threadsafe(self.task_started.set),
        }

    def close(self) -> None:
        return


@pytest.fixture
def running(tmp_path: Path, headgate: Command) -> Iterator[Running]:
    """A campaign that runs until the test is over."""
    addresses: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    roster = tmp_path / "roster.yaml"

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            endpoint = await stack.enter_async_context(serve(FaultPlan.parse("hang:probability=1")))
            roster.write_text(
                f"models:\n  - {{name: m, base_url: '{endpoint.base_url}', model: baseline-solver, max_parallel: 1}}\n"
            )
            seen = Seen(loop)
            settings = Settings(
                roster=str(roster),
                environments=(ENVIRONMENT,),
                store=str(tmp_path / "samples"),
                journal=tmp_path / "journal",
                enable_monitoring=True,
                monitor_port=0,
                drain_timeout_s=0.0,
            )
            campaign = asyncio.create_task(run_campaign(settings, instances=3, stop=stop, sinks=[seen]))
            await seen.task_started.wait()
            addresses.append(seen.address)
            ready.set()
            await campaign

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert ready.wait(30)
        yield Running(addresses[0], roster)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def test_a_running_campaign_says_where_each_task_is(headgate: Command, running: Running) -> None:
    states = {str(task["task_id"]): task["state"] for task in running.tasks()}
    assert sorted(states.values()) == ["queued", "queued", "running"]
    for task_id, state in states.items():
        answer = headgate("why", task_id, "--url", running.address, "--json").document
        assert (answer["task_id"], answer["state"], answer["asked"]) == (task_id, state, running.address)
        assert (answer["gate"] == "model_parallel") == (state == "queued")


def test_a_task_can_be_named_by_model_and_environment(headgate: Command, running: Running) -> None:
    first = headgate("why", "m", ENVIRONMENT, "--url", running.address, "--json").document
    assert first["state"] == "running"
    second = headgate("why", "m@main", ENVIRONMENT, "1", "--url", running.address, "--json").document
    assert second["task_id"] == task_id_of("m@main", ENVIRONMENT, 1, "sample", "main")


def test_the_answer_names_gate_and_reason_in_words(headgate: Command, running: Running) -> None:
    queued = next(str(task["task_id"]) for task in running.tasks() if task["state"] == "queued")
    said = headgate("why", queued, "--url", running.address)
    assert said.status == 0
    assert f"{queued} is queued: model m@main has 1 of 1 requests in flight" in said.out
    assert "gate: model_parallel" in said.out
    assert f"asked: {running.address}" in said.out


@pytest.mark.parametrize(
    ("model", "environment", "expected"),
    [
        ("other", ENVIRONMENT, "Model other@main not found"),
        ("m@mian", ENVIRONMENT, "did you mean 'm@main'?"),
        ("other", ENVIRONMENT, "`headgate models`"),
        ("m", "affine:sat-hrad", "Environment affine:sat-hrad not found; did you mean 'affine:sat-hard'?"),
        ("m", "test:nothing", "Sampled now: affine:sat-hard."),
    ],
)
def test_names_without_an_open_task_are_refused(
    headgate: Command, running: Running, model: str, environment: str, expected: str
) -> None:
    said = headgate("why", model, environment, "--url", running.address)
    assert said.status == 2
    assert expected in said.err


def test_the_journal_that_is_asked_is_that_of_the_campaign_that_answers(headgate: Command, running: Running) -> None:
    asked = ("--url", running.address, "--campaign", "another")
    said = headgate("why", "other", ENVIRONMENT, "3", *asked)
    assert "not in the journal of main" in said.err


def test_a_task_that_no_one_knows_is_refused(headgate: Command, running: Running) -> None:
    said = headgate("why", "t-" + "0" * 24, "--url", running.address)
    assert said.status == 2
    assert "is in no running campaign" in said.err


def test_health_and_capacity_of_a_running_campaign(running: Running) -> None:
    health = httpx.get(f"{running.address}/status/health", trust_env=False).json()["health"]
    assert (health["active"], health["queued"], health["state"]) == (1, 2, "running")
    assert health["resources"] == {"workers": [1, 20]}
    assert health["requests"][0]["in_flight"] == 1
    plan = httpx.get(f"{running.address}/status/capacity", trust_env=False).json()["capacity"]
    assert plan["configured"]["max_parallel m@main"] == {
        "value": 1,
        "source": "roster",
        "detail": "",
        "fallback_from": None,
        "missing_reason": None,
    }
    assert plan["observed"]["workers"]["value"] == 1
    assert plan["observed"]["queued"]["value"] == 3


def test_an_address_where_nothing_answers_is_an_error(headgate: Command) -> None:
    said = headgate("why", "t-" + "0" * 24, "--url", "http://127.0.0.1:9")
    assert said.status == 2
    assert "no campaign answers at http://127.0.0.1:9" in said.err


def test_words_that_name_no_task_are_refused(headgate: Command) -> None:
    said = headgate("why", "12")
    assert said.status == 2
    assert "is not a task's id" in said.err


def test_without_a_campaign_the_number_of_a_task_has_to_be_given(headgate: Command) -> None:
    said = headgate("why", "m", ENVIRONMENT)
    assert said.status == 2
    assert "Give the task's number" in said.err


def test_asking_makes_no_journal(headgate: Command, tmp_path: Path) -> None:
    said = headgate("why", "m", ENVIRONMENT, "0")
    assert said.status == 2
    assert "not in the journal of main" in said.err
    assert not (tmp_path / ".headgate" / "journal").exists()


def test_what_a_campaign_left_open_is_in_the_journal(headgate: Command, tmp_path: Path) -> None:
    from headgate.core import sample_task
    from headgate.storage import Journal, Opening

    journal = Journal(tmp_path / "journal", "main")
    journal.open([Opening("m@main", ENVIRONMENT, 100.0, 10.0, 50)])
    journal.close()
    task = sample_task(
        campaign="main", model="m@main", environment=ENVIRONMENT, sequence=0, data_length=50, due_at=100.0
    )
    asked = ("--journal", "journal", "--json")
    answer = headgate("why", task.task_id, *asked).document
    assert (answer["state"], answer["gate"], answer["asked"]) == ("open", "no_campaign", "journal")
    assert headgate("why", "m", ENVIRONMENT, "0", *asked).document["task_id"] == task.task_id


def test_a_stored_sample_is_found_in_the_store(headgate: Command, tmp_path: Path) -> None:
    from headgate.core import Sample
    from headgate.storage import open_store
    from tests.telemetry.factories import sample

    task_id = task_id_of("m@main", ENVIRONMENT, 4, "sample", "main")
    stored: Sample = sample(task_id=task_id, model="m@main", environment=ENVIRONMENT, sequence=4)
    store = open_store(str(tmp_path / "samples"))
    asyncio.run(store.put_batch("b-1", [stored]))
    store.close()
    answer = headgate("why", "m", ENVIRONMENT, "4", "--store", "samples", "--json").document
    assert (answer["state"], answer["asked"]) == ("stored", "store")
    assert "score 0.75, a success" in answer["reason"]
