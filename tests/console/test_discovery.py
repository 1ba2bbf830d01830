"""The console finds the runs of a journal, watches and steers each, and sends its token to nobody else."""

from __future__ import annotations

import asyncio
import html
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import pytest

from headgate.cli.console_server import console
from headgate.config import Settings
from headgate.console import serve_console
from headgate.console.asking import LEFT, RunSource
from headgate.console.discovery import JournalSource
from headgate.console.matrix import Tables
from headgate.console.sources import Asked, Source, Sources
from headgate.core import Model, Secret
from headgate.core.errors import InvalidInputError
from headgate.core.events import MonitorStarted
from headgate.durable.databases import PostgresAddress
from headgate.models import serve
from headgate.run import run_campaign
from headgate.sampling import StaticRoster
from headgate.storage import Journal, Opening, ServedRun, address_to_ask
from headgate.telemetry import MonitorClient, new_registry, serve_monitor
from tests.console import worlds
from tests.console.conftest import settings
from tests.storage.test_journal_runs import killed

pytestmark = pytest.mark.usefixtures("prompt")

TOKEN = "monitor-token"


@asynccontextmanager
async def running(made: Settings, base_url: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Give the address of a real run's monitoring API, as a flow run serves it, and what stops the run."""
    stop = asyncio.Event()
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Listening:
        handlers: ClassVar = {MonitorStarted: lambda recorded: started.set_result(recorded.event.address)}

        def close(self) -> None: ...

    roster = StaticRoster((Model("baseline-random", base_url=base_url),))
    task = asyncio.create_task(run_campaign(made, roster=roster, stop=stop, sinks=[Listening()]))
    try:
        await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        yield await started, stop
    finally:
        stop.set()
        await task


def campaign(folder: Path, name: str, **further: Any) -> Settings:
    given = {
        "campaign": name, "environments": ("affine:sat",), "rates": {"*": 8_000.0}, "enable_monitoring": True,
        "monitor_port": 0, "monitor_token": TOKEN, "drain_timeout_s": 1.0, **further,
    }  # fmt: skip
    return settings(folder, **given)


class Viewer:
    """Somebody who looks at a console."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def text(self, path: str = "/") -> str:
        return html.unescape((await self.http.get(path, headers={"Accept": "text/html"})).text)

    async def until(self, *said: str, without: str = "\0") -> str:
        """Return the first page, as soon as it says all of this and not that, before 20 seconds are over."""
        async with asyncio.timeout(20):
            while True:
                text = await self.text()
                if all(words in text for words in said) and without not in text:
                    return text
                await asyncio.sleep(0.1)

    async def steer(self, **form: str) -> httpx.Response:
        return await self.http.post("/steer", data=form, headers={"Authorization": "Bearer x"})


@asynccontextmanager
async def looking(made: Settings, **watched: Any) -> AsyncIterator[Viewer]:
    async with (
        serve_console(made, port=0, journals=[made.journal], **watched) as address,
        httpx.AsyncClient(base_url=address) as http,
    ):
        yield Viewer(http)


@pytest.fixture(params=["folder", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where journals are: a folder, or a database."""
    url: str = request.getfixturevalue("postgres_url") if request.param == "postgres" else str(tmp_path / "journal")
    return url


@pytest.mark.parametrize(  # of a database the next test finds them
    "place", ["folder", pytest.param("postgres", marks=[pytest.mark.slow, pytest.mark.long])], indirect=True
)
async def test_runs_of_one_journal_are_found_watched_steered_and_seen_to_end(tmp_path: Path, place: str) -> None:
    nightly, daily = (campaign(tmp_path, name, journal=place) for name in ("nightly", "daily"))
    async with AsyncExitStack() as stack:
        base_url = (await stack.enter_async_context(serve())).base_url
        viewer = await stack.enter_async_context(looking(nightly))
        assert "serves its monitoring API now" in await viewer.text()
        first, _ = await stack.enter_async_context(running(nightly, base_url))
        second, stop = await stack.enter_async_context(running(daily, base_url))
        assert first != second
        text = await viewer.until("nightly", "daily", "3 of 3 parts answer")
        assert f"/matrix?run={quote(first)}" in text

        sure = {"verb": "pause", "reason": "new disks", "sure": "yes"}
        assert "Done." in (await viewer.steer(run=second, **sure)).text
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            paused = {run: len((await http.get(f"{run}/controls")).json()["controls"]) for run in (first, second)}
        assert paused == {first: 0, second: 1}

        stop.set()
        text = await viewer.until('<span class="chip warn">ended</span>')
        assert '<span class="chip bad">' not in text
        again, _ = await stack.enter_async_context(running(daily, base_url))
        await viewer.until(quote(again), "3 of 3 parts answer")


async def test_flow_runs_of_one_campaign_are_told_apart_by_what_they_sample(tmp_path: Path) -> None:
    equations = campaign(tmp_path, "main")
    tables = campaign(tmp_path, "main", environments=("headgate:tables",))
    async with AsyncExitStack() as stack:
        base_url = (await stack.enter_async_context(serve())).base_url
        viewer = await stack.enter_async_context(looking(equations))
        first, _ = await stack.enter_async_context(running(equations, base_url))
        second, stop = await stack.enter_async_context(running(tables, base_url))
        of_each = (
            f"main: affine:sat at {first.removeprefix('http://')}",
            f"main: headgate:tables at {second.removeprefix('http://')}",
        )
        now = await viewer.until(*of_each, ">main: affine:sat</span><span", ">main: headgate:tables</span><span")
        assert "3 of 3 parts answer" in now
        assert f"{of_each[1]}; 1 further run of main will obey as well" in await viewer.text(
            f"/steer?run={quote(second)}"
        )
        # Their models and environments are one table, in which each environment is steered where it is sampled.
        table = await viewer.text(f"/matrix?run={quote(first)}")
        assert "1–1 of 1" in table
        assert '<select name="run">' not in table
        for run, name in ((first, "affine:sat"), (second, "headgate:tables")):
            assert f"/steer?run={quote(run)}&environment={quote(name)}" in table

        # Both say that the campaign is paused, which is one thing; that one of its windows has ended is none.
        await viewer.steer(run=first, verb="pause", reason="new disks", sure="yes")
        await viewer.until("1 thing needs attention", "main is paused")
        await viewer.steer(run=first, verb="resume", sure="yes")
        await viewer.until("Nothing is wrong")
        stop.set()
        await viewer.until("Nothing is wrong", '<span class="chip warn">ended</span>', LEFT)


async def test_a_window_that_was_killed_is_shown_as_that_after_others_took_over_what_it_left(
    tmp_path: Path, place: str
) -> None:
    made, whole = settings(tmp_path, journal=place, monitor_token=TOKEN), worlds.large_status(2, 2)
    windows = [
        replace(whole, pairs=tuple(one for one in whole.pairs if one.environment == f"suite:0{n}")) for n in (0, 1)
    ]
    async with AsyncExitStack() as stack:
        viewer = await stack.enter_async_context(looking(made))
        lost, other = (Journal(made.journal, "main") for _ in windows)
        stack.callback(other.close)
        async with AsyncExitStack() as until_killed:
            addresses = []
            for status, journal, at in zip(windows, (lost, other), (until_killed, stack), strict=True):
                serving = serve_monitor(lambda it=status: it, new_registry(), port=0, token=Secret(TOKEN), run_id="r-1")
                addresses.append((await at.enter_async_context(serving)).address)
                samples = status.pairs[0].environment
                journal.announce(said(addresses[-1], "", samples, at=time.time() - 3_600))
            await viewer.until("3 of 3 parts answer")
            lost.open([Opening("m", "suite:00", time.time(), 60.0, 10)])
        killed(lost, made.journal)
        assert len(other.adopt(["suite:00"], ["m"])) == 1
        text = await viewer.until("Campaign main has ended", "it was killed, or its machine was lost")
        assert '<span class="chip bad">ended</span>' in text
        table = await viewer.text(f"/matrix?run={quote(addresses[1])}")
        assert [f"environment=suite%3A0{n}" in table for n in (0, 1)] == [True, True]
        assert (table.count(">lost</b>"), table.count("<td id=")) == (2, 4)

        # So does a console that began to look afterwards, until a later run samples the same.
        later = await stack.enter_async_context(looking(made))
        sampled = f"{addresses[0]} on {gethostname()}, which sampled suite:00 since "
        await later.until("A run of campaign main was lost", sampled, "UTC, did not leave its journal")
        other.announce(said(addresses[1], "", "suite:01", at=time.time() + 1))
        await later.until("2 of 2 parts answer", "was lost")
        again = stack.enter_context(closing(Journal(made.journal, "main")))
        again.announce(said("http://127.0.0.1:9", "", "suite:00", "suite:02", at=time.time() + 1))
        await later.until("2 of 3 parts answer", without="was lost")


def test_what_two_processes_say_of_one_pair_is_added() -> None:
    def said(environment: str, *, done: int, scored: int, lag_s: float, paused: str | None) -> RunSource:
        pair = {
            "model": "m", "environment": environment, "due": 10, "done": done, "scored": scored,
            "errors": done - scored, "score_sum": scored / 2, "rate_per_day": 24.0, "lag_s": lag_s, "mean_score": 0.5,
        }  # fmt: skip
        model = {
            "model": "m", "is_paused": paused is not None, "pause_reason": paused, "errors_1h": 1, "in_flight": 2,
            "queued": 3,
        }  # fmt: skip
        run = RunSource(MonitorClient(Settings(), "http://127.0.0.1:1"))
        run.said = {"models": [model], "pairs": [pair], "controls": None}
        return run

    runs = [
        said("a", done=5, scored=4, lag_s=3.0, paused=None),
        said("a", done=4, scored=2, lag_s=9.0, paused="service errors in a row"),
        said("b", done=1, scored=0, lag_s=0.0, paused=None),
    ]
    (row,) = Tables().rows(runs)
    both = row.cells["a"].pair
    assert [both[name] for name in ("due", "done", "scored", "errors", "mean_score", "lag_s")] == [
        20,
        9,
        6,
        3,
        0.5,
        9.0,
    ]
    assert (row.model["pause_reason"], row.model["errors_1h"], row.model["queued"]) == ("service errors in a row", 3, 9)
    assert sorted(row.cells) == ["a", "b"]


@asynccontextmanager
async def spy() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Give the port of a server on every address of this machine, and what it is asked."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hear, "0.0.0.0", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(settings(tmp_path).journal, "main")) as journal:  # type: ignore[arg-type]
        yield journal


def said(
    address: str, machine: str = "", *samples: str, campaign: str = "main", run_id: str = "r-1", at: float = 0.0
) -> ServedRun:
    return ServedRun(campaign, run_id, address, machine or gethostname(), at or time.time(), samples)


async def test_the_token_is_sent_to_no_host_that_the_operator_did_not_name(tmp_path: Path, journal: Journal) -> None:
    made = settings(tmp_path, monitor_token=TOKEN)
    async with spy() as (port, heard):
        # Both lead to the spy: one is no loopback address, the other is loopback of another machine.
        for address, machine, why in (
            (f"http://0.0.0.0:{port}", "", "console_hosts does not name 0.0.0.0"),
            (f"http://127.0.0.1:{port}", "elsewhere", "it listens on loopback of elsewhere"),
        ):
            journal.announce(said(address, machine))
            async with looking(made) as viewer:
                text = await viewer.until("Campaign main runs and is not watched", f"{address}: {why}")
                assert await viewer.text("/matrix") != ""
            assert heard == []
            assert "1 of 1 part answer" in text
        journal.announce(said(f"http://0.0.0.0:{port}"))
        async with looking(made.model_copy(update={"console_hosts": ("0.0.0.*",)})) as viewer:
            await viewer.until("Campaign http://0.0.0.0")
        assert f"Bearer {TOKEN}".encode() in heard[0]


@pytest.mark.parametrize("kind", ["runs", "jobqueues", "elastic"])
async def test_an_address_with_a_password_is_on_no_page(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidInputError, match=r"without a user or password \(got '127.0.0.1:9'\)"):
        async with serve_console(settings(tmp_path), port=0, **{kind: ["http://user:wxyz@127.0.0.1:9"]}):  # type: ignore[arg-type]
            pass


HERE = "box"
ADDRESSES = {
    "http://127.0.0.1:8765": "http://127.0.0.1:8765",
    "http://127.1:8765/": "http://127.0.0.1:8765",
    "https://[::1]:1": "https://[::1]:1",
    "http://LOCALHOST:9": "http://localhost:9",
    "http://[::ffff:127.0.0.1]:9": "http://127.0.0.1:9",
    "http://box:9": "http://127.0.0.1:9",  # whatever a name server says of it
    "http://node-7.internal:9": "http://node-7.internal:9",
    "http://worker:9": "http://worker:9",
    "http://10.0.3.4:9": "http://10.0.3.4:9",
    "http://node-7.internal.evil.example:9": "does not name",
    "http://node-7.x.internal:9": "does not name",
    "http://10.0.3.4.evil.example:9": "does not name",
    "http://3232235777:9": "does not name 192.168.1.1",
    "http://[2001:db8::1]:9": "does not name 2001:db8::1",
    "http://evil.example:9": "does not name",
    "http://worker:9@evil.example:9": "not an http://HOST:PORT",
    "http://127.0.0.1:9\\@evil.example:9": "not an http://HOST:PORT",
    "http://user:secret@127.0.0.1:9": "not an http://HOST:PORT",
    "http://127.0.0.1:9/v1/messages": "not an http://HOST:PORT",
    "http://127.0.0.1:9?x=1": "not an http://HOST:PORT",
    "http://169.254.169.254:80": "not an http://HOST:PORT",
    "http://metadata:80": "not an http://HOST:PORT",
    "http://127.0.0.1": "not an http://HOST:PORT",
    "http://127.0.0.1:0": "not an http://HOST:PORT",
    "http://127.0.0.1:99999": "not an http://HOST:PORT",
    "ftp://127.0.0.1:9": "not an http://HOST:PORT",
    "file:///etc/passwd": "not an http://HOST:PORT",
    "127.0.0.1:9": "not an http://HOST:PORT",
    "http://w\u00f6rker:9": "not an http://HOST:PORT",
    "http://:9": "not an http://HOST:PORT",
    "http://.:9": "not an http://HOST:PORT",
}


def test_an_address_of_a_journal_is_asked_only_where_the_token_may_go() -> None:
    for address, expected in ADDRESSES.items():
        try:
            asked = address_to_ask(said(address, HERE), ("node-*.internal", "10.0.*.*", "w*", ""), HERE)
        except InvalidInputError as error:
            asked = str(error)
        assert expected in asked, address
        assert expected.startswith("http") == asked.startswith("http"), address
    for address in ("http://127.0.0.1:9", "http://localhost:9"):
        with pytest.raises(InvalidInputError, match="it listens on loopback of other"):
            address_to_ask(said(address, "other"), (), HERE)


async def test_a_holder_that_cannot_be_read_is_shown_beside_the_runs_of_its_folder(
    tmp_path: Path, journal: Journal
) -> None:
    made, status = settings(tmp_path, monitor_token=TOKEN), worlds.large_status(2, 2)
    (holder := tmp_path / "journal" / "main" / "holders" / "h-0").symlink_to(holder)
    async with (
        serve_monitor(lambda: status, new_registry(), port=0, token=Secret(TOKEN), run_id="r-1") as server,
        looking(made) as viewer,
    ):
        journal.announce(said(server.address))
        text = await viewer.until("2 of 2 parts answer", f"{holder} cannot be read")
        assert "Too many levels of symbolic links" in text


async def test_what_is_meant_for_a_run_that_has_ended_reaches_no_other_one(tmp_path: Path, journal: Journal) -> None:
    made = settings(tmp_path, monitor_token=TOKEN)
    status = worlds.large_status(2, 2)
    steered = Steered()
    async with serve_monitor(
        lambda: status, new_registry(), port=0, token=Secret(TOKEN), run_id="r-2", steering=steered
    ) as server:
        address = server.address
        journal.announce(said(address, run_id="r-1"))  # it was killed, and another run has its port
        async with looking(made) as viewer:
            await viewer.until("another run answers here, not 'r-1'")
            form = {"run": address, "verb": "pause", "reason": "x", "sure": "yes"}
            assert "another run answers here" in (await viewer.steer(**form)).text
            assert steered.orders == []
            journal.announce(said(address, run_id="r-2"))
            await viewer.until("2 of 2 parts answer")
            gone = await viewer.steer(**form, run_id="r-1")
            assert (gone.status_code, "another run has this address by now" in gone.text) == (404, True)
            assert steered.orders == []
            assert (await viewer.steer(**form, run_id="r-2")).status_code == 200
            assert [order["verb"] for order in steered.orders] == ["pause"]


class Steered:
    """Keeps what a run is ordered."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []

    def document(self) -> dict[str, Any]:
        return {"revision": 0, "controls": [], "log": []}

    async def steer(self, document: dict[str, Any], by: str, *, dry_run: bool) -> dict[str, Any]:
        self.orders.append(document)
        return {"did": "paused"}


@pytest.mark.parametrize("is_same", [False, True])
async def test_two_journals_may_name_one_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_same: bool
) -> None:
    sources, status, both = Sources(), worlds.large_status(2, 2), (tmp_path / "one", tmp_path / "two")
    told: dict[Path, dict[ServedRun, float]] = {place: {} for place in both}
    monkeypatch.setattr("headgate.console.discovery.served_runs", lambda place: (dict(told[place]), {}))
    one, two = (JournalSource(place, settings(tmp_path), sources) for place in both)
    async with serve_monitor(lambda: status, new_registry(), port=0) as server:
        first = said(server.address, campaign="nightly")
        second = first if is_same else said(server.address, campaign="daily", at=first.started_at + 1)
        told[both[0]], told[both[1]] = {first: math.inf}, {second: math.inf}
        for _ in range(2):
            await asyncio.gather(one.poll(now=True), two.poll(now=True))
            assert (one.problem, two.problem) == ("", "")
        (run,) = sources.of("run")
        assert isinstance(run, RunSource)
        assert run.run == second
    for journal in (one, two):
        await journal.close()
    assert sources.all == ()


async def test_a_slow_journal_is_asked_on_while_only_runs_that_ended_are_known() -> None:
    ended, asked, again = Source("run", "http://there", gone), [0], asyncio.Event()

    async def slow() -> Asked:
        asked[0] += 1
        if asked[0] > 1:
            again.set()
        await asyncio.sleep(0.2)
        return {}, {}, 0

    ended.seen_at, ended.left, ended.is_gone = 1.0, "", True
    sources = Sources([ended, Source("journal", "there", slow)])
    async with asyncio.timeout(20):
        while not again.is_set():
            await sources.changed(sources.revision, 1)
        await sources.close()


async def gone() -> Asked:
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize(("is_killed", "ended_by"), [(True, ""), (False, LEFT)])
async def test_a_run_that_was_killed_is_told_by_its_journal_whatever_name_it_goes_by_there(
    tmp_path: Path, is_killed: bool, ended_by: str
) -> None:
    made, sources, status = settings(tmp_path), Sources(), worlds.large_status(2, 2)
    assert isinstance(made.journal, Path)
    found = JournalSource(made.journal, made, sources)
    journal = Journal(made.journal, status.campaign)
    async with serve_monitor(lambda: status, new_registry(), port=0, run_id="r-1") as server:
        journal.announce(said(f"http://{gethostname()}:{server.port}", campaign=status.campaign))
        await found.poll()
        (run,) = sources.of("run")
        await run.poll()
        assert run.is_up
    if is_killed:
        journal._db.holders._lock.give_back()  # type: ignore[attr-defined]
    else:
        journal.close()
    await run.poll(now=True)
    assert (run.is_gone, run.ended_by) == (True, ended_by)
    await found.close()


def test_the_command_looks_into_the_journals_it_is_given_or_into_that_of_its_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shown: list[dict[str, Any]] = []

    @asynccontextmanager
    async def served(_: Settings, **watched: Any) -> AsyncIterator[str]:
        shown.append(watched)
        yield "http://127.0.0.1:8770"

    monkeypatch.setattr("headgate.cli.console_server.serve_console", served)
    monkeypatch.setattr("headgate.cli.console_server.stop_on_signals", lambda stop: stop.set())
    console()
    console(journal=("here", "postgresql://ops:secret@db.example/headgate"))
    console(run=("http://127.0.0.1:8765",))
    found = [([str(place) for place in one["journals"]], list(one["runs"])) for one in shown]
    assert found == [
        ([".headgate/journal"], []),
        (["here", "postgresql://db.example/headgate"], []),
        ([], ["http://127.0.0.1:8765"]),
    ]


def test_a_console_beside_a_run_is_given_the_password_of_its_journal() -> None:
    address = PostgresAddress("postgresql://ops:p%40s%20s@db.example:5433/headgate?sslmode=require")
    given = PostgresAddress(address.url())
    assert (str(given), given.parameters()) == (str(address), address.parameters())
    assert given.parameters()["password"] == "p@s s"
