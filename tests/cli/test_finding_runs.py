"""Commands find runs in the journal, as the console does; none is steered that was not meant."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from headgate.config import Settings
from headgate.core import events
from headgate.models import FaultPlan, serve
from headgate.net.listener import free_port
from headgate.run import run_campaign
from headgate.storage import Journal, ServedRun
from tests.cli.conftest import Command

ENVIRONMENT = "affine:sat-hard"
TOKEN = "monitor-token"
SIGNED = {"Authorization": f"Bearer {TOKEN}"}
TWO = ("nightly", "daily")


@dataclass
class Runs:
    """Campaigns of one model in one journal, which wanted the same port: the first one has it."""

    addresses: dict[str, str]
    options: tuple[str, ...]
    port: int

    def asked(self, campaign: str, path: str) -> Any:
        return httpx.get(self.addresses[campaign] + path, headers=SIGNED, trust_env=False).json()

    def paused(self) -> dict[str, int]:
        return {campaign: len(self.asked(campaign, "/controls")["controls"]) for campaign in self.addresses}


class Seen:
    def __init__(self) -> None:
        self.address, self.has_task = "", asyncio.Event()

    @property
    def handlers(self) -> dict[type[events.Event], Any]:
        return {
            events.MonitorStarted: lambda recorded: setattr(self, "address", recorded.event.address),
            events.TaskStarted: lambda _: self.has_task.set(),
        }

    def close(self) -> None:
        return


@contextlib.contextmanager
def running(folder: Path, *campaigns: str, journal: Any = None) -> Iterator[Runs]:
    """Run campaigns in a thread, whose endpoint answers nothing: each has one task in progress and two queued.

    `NAME/ENVIRONMENT` is a run of a campaign that samples another environment.
    """
    ready, stop, loop, port = threading.Event(), asyncio.Event(), asyncio.new_event_loop(), free_port()
    roster, addresses, failed = folder / "roster.yaml", {}, []
    place = journal or folder / "journal"

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            endpoint = await stack.enter_async_context(serve(FaultPlan.parse("hang:probability=1")))
            roster.write_text(
                f"models:\n  - {{name: m, base_url: '{endpoint.base_url}', model: baseline-solver, max_parallel: 1}}\n"
            )
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for campaign in campaigns:
                name, _, environment = campaign.partition("/")
                made = Settings(
                    campaign=name, roster=str(roster), environments=(environment or ENVIRONMENT,),
                    store=str(folder / "samples"),
                    journal=place, enable_monitoring=True, monitor_port=port, monitor_token=TOKEN, drain_timeout_s=0.0,
                )  # fmt: skip
                seen = Seen()
                group.create_task(run_campaign(made, instances=3, stop=stop, sinks=[seen]))
                await asyncio.wait_for(seen.has_task.wait(), 30)
                addresses[campaign] = seen.address
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        if failed:
            raise failed[0]
        options = ("--journal", str(place), "--set", f"monitor_token={TOKEN}", "--set", f"roster={roster}")
        yield Runs(addresses, options, port)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with running(tmp_path_factory.mktemp("two"), *TWO) as runs:
        assert runs.addresses["nightly"].endswith(f":{runs.port}")
        assert not runs.addresses["daily"].endswith(f":{runs.port}")
        yield runs


def test_of_several_campaigns_that_run_only_the_one_that_is_named_is_steered(headgate: Command, two: Runs) -> None:
    refused = headgate("pause", "--model", "m", *two.options)
    assert (refused.status, two.paused()) == (2, {"nightly": 0, "daily": 0})
    assert "may be meant: daily runs, nightly runs" in refused.err
    assert "Name one with --campaign; nothing was changed." in refused.err
    said = headgate("pause", "--model", "m", "--campaign", "daily", *two.options)
    assert said.out.splitlines()[-1] == f"told: campaign daily at {two.addresses['daily']}"
    assert two.paused() == {"nightly": 0, "daily": 1}
    assert headgate("resume", "--model", "m", "--url", two.addresses["daily"], *two.options).status == 0
    assert two.paused() == {"nightly": 0, "daily": 0}


def test_an_order_goes_to_a_run_that_knows_what_it_is_about(headgate: Command, tmp_path: Path) -> None:
    other = "affine:ded"
    with running(tmp_path, "nightly", f"nightly/{other}") as runs:
        for environment, campaign in ((ENVIRONMENT, "nightly"), (other, f"nightly/{other}")):
            said = headgate("set", "rate", "7", "-e", environment, *runs.options)
            place = f"campaign nightly at {runs.addresses[campaign]}; the order holds for 1 further run as well"
            assert said.out == f"set rate of environment {environment} from default to 7\ntold: {place}\n"
        unknown = headgate("set", "rate", "7", "-e", "affine:sat", *runs.options)
        assert (unknown.status, max(runs.paused().values())) == (2, 2)
        assert "this campaign has no environment 'affine:sat'" in unknown.err
        for environment in (ENVIRONMENT, other):  # whichever run is asked last, what is wrong is said
            wrong = headgate("set", "cap", "3", "-m", "m", "-e", environment, *runs.options)
            assert f"a cap is set for a model (got m@main in {environment})" in wrong.err


def test_an_address_of_another_campaign_than_is_named_is_not_steered(headgate: Command, two: Runs) -> None:
    said = headgate("pause", "--campaign", "nightly", "--url", two.addresses["daily"], *two.options)
    assert (said.status, set(two.paused().values())) == (2, {0})
    assert "campaign daily answers at --url, not nightly, which --campaign names" in said.err


def test_what_only_reads_shows_every_campaign_that_runs_by_its_name(headgate: Command, two: Runs) -> None:
    assert headgate("set", "cap", "7", "-m", "m", "--campaign", "nightly", *two.options).status == 0
    said = headgate("controls", *two.options).out
    for campaign, controls in (("daily", 0), ("nightly", 1)):
        assert f"{controls} control{'s' * (controls != 1)} in force, of campaign {campaign} at " in said
    documents = headgate("controls", "--json", *two.options).document
    assert {one["campaign"]: len(one["controls"]) for one in documents} == {"daily": 0, "nightly": 1}
    assert headgate("controls", "--json", "--campaign", "daily", *two.options).document["controls"] == []
    assert headgate("undo", "1", "--campaign", "nightly", *two.options).status == 0

    answers = headgate("why", "m", ENVIRONMENT, "--json", *two.options).document
    assert {one["campaign"]: one["asked"] for one in answers} == two.addresses
    assert {one["state"] for one in answers} == {"running"}
    (named,) = [one for one in answers if one["campaign"] == "daily"]
    assert headgate("why", named["task_id"], "--json", *two.options).document == named
    assert headgate("why", "m", ENVIRONMENT, "--campaign", "daily", "--json", *two.options).document == named
    assert f"asked: {two.addresses['daily']}, campaign daily" in headgate("why", named["task_id"], *two.options).out

    assert [one["campaign"] for one in headgate("models", "--json", *two.options).document] == ["daily", "nightly"]
    assert "nightly" in headgate("models", *two.options).out
    assert "nightly" not in headgate("models", "--campaign", "daily", *two.options).out


def test_models_of_running_campaigns_are_shown_without_a_roster(headgate: Command, two: Runs) -> None:
    journal = two.options[:4]
    said = headgate("models", "--json", "--campaign", "daily", *journal)
    assert said.status == 0, said.err
    (model,) = said.document
    assert (model["name"], model["revision"], model["campaign"]) == ("m", "main", "daily")
    assert (model["endpoint"], model["has_key"], model["parallel"]) == (None, None, None)
    shown = headgate("models", *journal)
    assert (shown.out.count(" daily "), shown.out.count(" nightly ")) == (1, 1)
    assert "name it with --roster" in shown.err
    assert "endpoint" in headgate("models", *two.options).out
    nothing = headgate("models")
    assert nothing.status == 2
    words = " ".join(nothing.err.split())
    assert "no roster is given" in words
    assert "A campaign that runs with --enable-monitoring reports its models." in words


def test_a_campaign_that_does_not_run_there_is_told_with_those_that_do(headgate: Command, two: Runs) -> None:
    for words in (("pause",), ("controls",)):
        said = headgate(*words, "--campaign", "nightyl", *two.options)
        assert (said.status, two.paused()) == (2, {"nightly": 0, "daily": 0})
        assert f"campaign nightyl has no run in journal {two.options[1]} that can be asked" in said.err
        assert "and no journal there" in said.err
    unknown = headgate("why", "t-" + "0" * 24, *two.options)
    assert unknown.status == 2
    assert "not in the journal of daily" in unknown.err
    assert "not in the journal of nightly" in unknown.err


def test_a_run_of_another_journal_is_not_asked_whatever_its_port(headgate: Command, tmp_path: Path, two: Runs) -> None:
    there = ("--set", f"monitor_port={two.port}", "--set", f"monitor_token={TOKEN}")
    said = headgate("pause", "--campaign", "nightly", *there)
    assert (said.status, two.paused()) == (2, {"nightly": 0, "daily": 0})
    assert "campaign nightly has no run in journal .headgate/journal that can be asked" in said.err
    assert "Check --campaign and --journal, or give --url" in said.err
    Journal(tmp_path / ".headgate" / "journal", "nightly").close()
    said = headgate("pause", "--campaign", "nightly", *there)
    assert said.status == 0
    assert "that can be asked; written to journal " in said.out
    assert two.paused() == {"nightly": 0, "daily": 0}


def test_one_run_is_found_and_not_steered_for_another_campaign_at_rest(headgate: Command, tmp_path: Path) -> None:
    with running(tmp_path, "nightly") as one:
        assert headgate("why", "m", ENVIRONMENT, "--json", *one.options).document["campaign"] == "nightly"
        said = headgate("set", "cap", "2", "-m", "m", *one.options)
        assert said.out.splitlines()[-1] == f"told: campaign nightly at {one.addresses['nightly']}"
        assert one.paused() == {"nightly": 1}
        Journal(tmp_path / "journal", "main").close()
        refused = headgate("drain", *one.options)
        assert refused.status == 2
        assert "may be meant: nightly runs, main is at rest" in refused.err
        unsigned = headgate("pause", *one.options, "--campaign", "nightly", "--set", "monitor_token=wrong")
        assert (unsigned.status, one.paused()) == (2, {"nightly": 1})
        assert "does not accept the monitor_token that was sent" in unsigned.err


def test_the_token_goes_where_the_consoles_goes(headgate: Command, tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "journal", "main")) as journal:
        heard, asked = socket.create_server(("127.0.0.1", 0)), ("--journal", str(tmp_path / "journal"))
        with heard:
            heard.setblocking(False)
            address = f"http://127.0.0.1:{heard.getsockname()[1]}"
            journal.announce(ServedRun("main", "r-1", address, "elsewhere", time.time()))
            said = headgate("pause", *asked, "--set", f"monitor_token={TOKEN}")
            assert said.status == 0
            assert f"campaign main runs at {address} and is not asked: it listens on loopback of elsewhere" in said.out
            assert "written to journal" in said.out
            shown = headgate("controls", *asked, "--json")
            assert [one["what"] for one in shown.document["controls"]] == ["paused"]
            assert "and is not asked: it listens on loopback of elsewhere" in shown.err
            with pytest.raises(BlockingIOError):
                heard.accept()


def test_a_holder_that_cannot_be_read_is_told_and_hides_no_run(headgate: Command, tmp_path: Path) -> None:
    with running(tmp_path, "nightly") as one:
        holders = tmp_path / "journal" / "daily" / "holders"
        holders.mkdir(parents=True)
        (holders / "h-0").symlink_to(holders / "h-0")
        said = headgate("controls", *one.options)
        assert "0 controls in force, of campaign nightly at " in said.out
        assert f"{holders / 'h-0'} cannot be read: Too many levels of symbolic links" in said.err
        refused = headgate("pause", *one.options)  # somebody may be meant who is hidden there
        assert (refused.status, one.paused()) == (2, {"nightly": 0})
        assert headgate("pause", "--campaign", "nightly", *one.options).status == 0
        assert one.paused() == {"nightly": 1}
    assert "campaign main has no run in journal " in headgate("pause", *one.options).err
    Journal(tmp_path / "journal", "main").close()
    assert f"{holders / 'h-0'} cannot be read: Too many levels of symbolic links, main is at rest" in " ".join(
        headgate("pause", *one.options).err.split()
    )


@pytest.mark.parametrize("words", [("controls",), ("pause",), ("why", "t-" + "0" * 24)])
def test_a_folder_of_journals_that_cannot_be_looked_into_is_told(headgate: Command, words: tuple[str, ...]) -> None:
    longest = "/".join(["d" * 100] * 40 + ["d" * 53])  # of a campaign in it, no system takes the name
    said = headgate(*words, "--journal", longest, "--campaign", "main")
    assert said.status == 3
    assert said.err.startswith("error [journal_failed] journal ddd")
    assert "Check the folder's rights" in said.err


@pytest.mark.slow
def test_looking_for_a_campaign_in_a_database_makes_nothing_there(
    headgate: Command, tmp_path: Path, postgres_url: str
) -> None:
    with running(tmp_path, "nightly", journal=postgres_url) as one:
        looks = (("plan", "-e", ENVIRONMENT), ("why", "t-" + "0" * 24), ("models",), ("controls",), ("pause",))
        budget = ("--set", "daily_tokens=1000")
        for words in looks:
            headgate(*words, "--campaign", "daily", *one.options, *budget)
        said = headgate("pause", *one.options)
        assert said.out.splitlines()[-1] == f"told: campaign nightly at {one.addresses['nightly']}"
        assert one.paused() == {"nightly": 1}
    with psycopg.connect(postgres_url) as database:
        schemas = database.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'headgate%'").fetchall()
    assert schemas == [("headgate_journal_nightly",)]


def test_a_run_that_is_another_campaign_than_its_journal_says_is_not_steered(headgate: Command, tmp_path: Path) -> None:
    with running(tmp_path, "nightly") as one, contextlib.closing(Journal(tmp_path / "journal", "daily")) as daily:
        run_id = httpx.get(f"{one.addresses['nightly']}/status/health", headers=SIGNED, trust_env=False).json()
        address = one.addresses["nightly"]
        daily.announce(ServedRun("daily", run_id["health"]["run_id"], address, socket.gethostname(), time.time()))
        said = headgate("pause", "--campaign", "daily", *one.options)
        assert f"campaign daily runs at {address} and is not asked: campaign nightly answers there" in said.out
        assert (said.status, one.paused()) == (0, {"nightly": 0})
