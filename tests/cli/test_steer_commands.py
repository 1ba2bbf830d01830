"""`headgate pause` and its siblings, on a running campaign and on what one left behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.config import Settings
from headgate.core import events
from headgate.core.audit import audit_entries
from headgate.models import serve
from headgate.run import run_campaign
from headgate.storage import Journal, ServedRun
from tests.cli.conftest import Command

ENVIRONMENT = "affine:sat-hard"


@dataclass
class Running:
    """A campaign in a thread, of one model that answers."""

    address: str
    options: tuple[str, ...]

    def samples(self) -> int:
        summary = httpx.get(f"{self.address}/status", trust_env=False).json()
        return int(summary["samples"])

    def rests(self) -> bool:
        summary = httpx.get(f"{self.address}/status/summary", trust_env=False).json()
        return bool(summary["workers"]["active"] == 0)


class Seen:
    def __init__(self) -> None:
        self.address, self.is_running = "", threading.Event()

    @property
    def handlers(self) -> dict[type[events.Event], Any]:
        return {
            events.MonitorStarted: lambda recorded: setattr(self, "address", recorded.event.address),
            events.CampaignStarted: lambda _: self.is_running.set(),
        }

    def close(self) -> None:
        return


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("steered")
    seen, loop, stop = Seen(), asyncio.new_event_loop(), asyncio.Event()
    roster = folder / "roster.yaml"

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            endpoint = await stack.enter_async_context(serve())
            roster.write_text(f"models:\n  - {{name: m, base_url: '{endpoint.base_url}', model: baseline-solver}}\n")
            settings = Settings(
                roster=str(roster),
                environments=(ENVIRONMENT,),
                store=str(folder / "samples"),
                journal=folder / "journal",
                rates={ENVIRONMENT: 400_000.0},
                enable_monitoring=True,
                monitor_port=0,
                drain_timeout_s=1.0,
            )
            await run_campaign(settings, stop=stop, sinks=[seen])

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert seen.is_running.wait(60)
        yield Running(seen.address, ("--journal", str(folder / "journal"), "--set", f"roster={roster}"))
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_running_campaign_is_paused_changed_and_resumed(headgate: Command, running: Running) -> None:
    to = ("--url", running.address)
    until(lambda: running.samples() > 0)
    tried = headgate("pause", "--model", "m", "--dry-run", *to)
    assert tried.out.startswith("would pause model m@main: ")
    assert tried.out.splitlines()[-1] == f"asked: campaign main at {running.address}"
    said = headgate("pause", "--model", "m", "--reason", "a bad endpoint", *to)
    assert (said.status, said.out.splitlines()[-1]) == (0, f"told: campaign main at {running.address}")
    assert said.out.startswith("paused model m@main: ")
    until(running.rests)
    before = running.samples()
    why = headgate("why", "m", ENVIRONMENT, *to)
    assert "model m@main is paused by local since " in why.out
    assert "gate: paused" in why.out
    listed = headgate(
        "models",
        "--set",
        f"roster={running.options[3][7:]}",
        *to,
    )
    assert "paused" in listed.out
    assert running.samples() == before
    again = headgate("pause", "--model", "m@main", "--json", *to).document
    assert again["did"].startswith("nothing to do: model m@main is paused by local since ")
    assert again["did"].endswith(": a bad endpoint")
    assert headgate("resume", "-m", "m", *to).out.startswith("resumed model m@main")
    until(lambda: running.samples() > before)
    assert headgate("set", "rate", "2000", "-e", ENVIRONMENT, *to).out.startswith(
        f"set rate of environment {ENVIRONMENT} from default to 2000"
    )
    document = headgate("controls", "--json", *to).document
    assert [(one["what"], one["value"], one["revision"]) for one in document["controls"]] == [("rate", 2_000.0, 3)]
    undone = headgate("undo", "3", *to)
    assert undone.out.startswith(f"undid setting rate of environment {ENVIRONMENT} to 2000: it is default again")
    shown = headgate("controls", *to)
    assert shown.out.startswith(f"0 controls in force, of campaign main at {running.address}\n")
    assert "resumed model m@main, by local (change 2)" in shown.out
    assert headgate("set", "rate", "1", "-e", ENVIRONMENT, *to).status == 0
    until(lambda: "gate: rate, until " in (why := headgate("why", "m", ENVIRONMENT, *to)).out or why.status == 2)
    why = headgate("why", "m", ENVIRONMENT, *to)
    assert (
        f"the next task of m@main in {ENVIRONMENT} is not due: all its due samples are done; it is sampled" in why.out
    )
    assert headgate("set", "rate", "default", "-e", ENVIRONMENT, *to).status == 0


def test_what_is_written_to_the_journal_of_a_run_that_is_not_asked_acts_within_moments(
    headgate: Command, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard = running.options
    monkeypatch.setattr("headgate.storage.journal_runs.gethostname", lambda: "elsewhere")
    said = headgate("pause", "-e", ENVIRONMENT, *unheard)
    assert said.out.splitlines()[0] == f"paused environment {ENVIRONMENT}"
    assert f"campaign main runs at {running.address} and is not asked: it listens on loopback of " in said.out
    assert "written to journal " in said.out

    def paused() -> list[str]:
        controls = httpx.get(f"{running.address}/controls", trust_env=False).json()["controls"]
        return [one["environment"] for one in controls]

    until(lambda: paused() == [ENVIRONMENT])
    assert headgate("resume", "-e", ENVIRONMENT, *unheard).status == 0
    until(lambda: paused() == [])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("pause", "-m", "n"), 2, "this campaign has no model 'n'"),
        (("pause", "-e", "affine:sat-hrad"), 2, "did you mean 'affine:sat-hard'"),
        (("set", "rate", "nan", "-e", ENVIRONMENT), 2, "rate must be a number, or `default` (got 'nan')"),
        (("set", "rate", "fast", "-e", ENVIRONMENT), 2, "rate must be a number, or `default` (got 'fast')"),
        (("set", "wokers", "3"), 2, "did you mean 'workers'"),
        (("undo", "999"), 2, "there is no change 999"),
    ],
    ids=str,
)
def test_a_running_campaign_and_a_journal_refuse_the_same(
    headgate: Command,
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    for to in (("--url", running.address), running.options):
        monkeypatch.setattr("headgate.storage.journal_runs.gethostname", lambda: "elsewhere")
        answer = headgate(*words, *to)
        assert (answer.status, said in " ".join(answer.err.split())) == (status, True), answer.err


def test_without_a_run_the_journal_is_told_and_the_next_run_obeys(headgate: Command, roster: Path) -> None:
    nobody = ("--set", f"roster={roster}")
    said = headgate("pause", *nobody)
    assert said.status == 2
    assert "campaign main has no run in journal .headgate/journal that can be asked, and no journal there" in said.err
    Journal(Path(".headgate/journal"), "main").close()
    later = headgate("pause", "--model", "alpha", "--reason", "later", *nobody)
    assert (later.status, later.out.splitlines()[-1].endswith(", which its next run obeys: none is alive")) == (0, True)
    tried = headgate("withdraw", "--dry-run", *nobody)
    assert tried.out.startswith("would withdraw what is queued of the whole run")
    assert "nothing is written to journal" in tried.out
    (control,) = headgate("controls", "--json", *nobody).document["controls"]
    assert (control["model"], control["what"], control["value"], control["reason"]) == (
        "alpha@main",
        "paused",
        True,
        "later",
    )
    assert control["by"].startswith("user ")
    *_, entry = audit_entries()
    assert (entry.what, entry.thing, entry.after) == ("controls pause paused", "model alpha@main", "yes later")


def test_a_drain_without_a_run_drains_nothing_and_says_what_became_of_the_last_run(
    headgate: Command, roster: Path
) -> None:
    journal = Journal(Path(".headgate/journal"), "main")
    said = headgate("drain", "--set", f"roster={roster}")
    assert said.out.startswith("drained the whole run\n")
    assert said.out.strip().endswith("which every run of it obeys"), "another process has the journal open"
    journal.close()
    lost = ServedRun("main", "r-1", "http://127.0.0.1:1", "here", 1_767_225_600.0)
    (Path(".headgate/journal/main/holders") / "h-0123456789abcdef").write_text(lost.said())
    said = headgate("drain", "--set", f"roster={roster}")
    assert (said.status, said.out.splitlines()[0]) == (0, "nothing to drain: no run of campaign main is alive")
    assert "; the one of 2026-01-01 00:00:00 UTC was killed, or its machine was lost; nothing is written" in said.out
    assert len(headgate("controls", "--json").document["log"]) == 1
    assert "was killed, or its machine was lost" in headgate("why", "alpha", ENVIRONMENT).err


def test_models_tells_what_a_running_campaign_leaves_of_a_budget_that_was_set(
    headgate: Command, running: Running
) -> None:
    to, limit = ("--url", running.address), 50_000_000
    asked = running.options
    assert "left of 24 h" not in headgate("models", *asked).out
    headgate("set", "budget", str(limit), "--model", "m", *to)
    done = running.samples()
    until(lambda: running.samples() > done + 2)
    (model,) = headgate("models", *asked, "--json").document
    (budget,) = model["budgets"]
    assert (budget["name"], budget["limit"], model["lane"], model["price"]) == ("daily_tokens", limit, "", None)
    assert 0 < budget["used"] == limit - budget["left"]
    assert "of 50,000,000 tokens" in headgate("models", *asked).out
    headgate("set", "budget", "default", "--model", "m", *to)
