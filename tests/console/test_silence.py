"""What the console says of parts that have gone silent: nothing old is shown as news."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.cli import main
from headgate.cli.console_server import console_beside
from headgate.console import serve_console
from headgate.console.access import Access
from headgate.console.app import console_app
from headgate.console.asking import LEFT, RunSource
from headgate.console.findings import Finding, found_in
from headgate.console.records import Records
from headgate.console.serving import opened_sources
from headgate.console.sources import RAREST_S, Asked, Source, Sources
from headgate.core.errors import InvalidInputError, InvalidSettingError
from headgate.durable import locks
from headgate.jobqueue.server import ServerSettings, running_server
from headgate.net.listener import bound
from headgate.placement.service.journal import Journal, JournalError, read_journal
from headgate.storage import ControlOrder, SampleIndex, SampleStore, open_store
from headgate.storage import Journal as CampaignJournal
from headgate.telemetry import MonitorClient, status_document
from tests.console import worlds
from tests.console.conftest import Serve, Visits, settings
from tests.storage.samples import many

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal


class _Told:
    """What a source is asked: it answers with `said` until it hangs or is gone."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said
        self.hangs = False
        self.error: Exception | None = None

    async def ask(self) -> Asked:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.said, {}, 0


def _running() -> _Told:
    return _Told(status_document(worlds.large_status(2, 2)) | {"controls": None})


async def _page(source: Source, path: str, folder: Path) -> str:
    made = settings(folder)
    async with aclosing(Records(made)) as records:
        app = console_app(made, Sources([source]), records, Access())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get(path, headers={"accept": "text/html"})).text


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a page wait shortly for sources that hang."""
    monkeypatch.setattr("headgate.console.sources.PATIENCE_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_run_that_hangs_is_not_shown_as_it_was_hours_ago(portal: BlockingPortal, tmp_path: Path) -> None:
    async def look() -> str:
        told = _running()
        source = Source("run", "http://there", told.ask)
        await source.poll()
        assert "Endpoints" in await _page(source, "/", tmp_path)
        source.seen_at, source._next_at, told.hangs = time.time() - 4 * 3600, 0.0, True
        return await _page(source, "/", tmp_path)

    text = portal.call(look)
    assert "0 of 1 part answer" in text
    assert "no answer yet; it last answered" in text
    assert "Endpoints" not in text


def test_a_leaderboard_made_while_older_samples_are_being_read_says_so(
    portal: BlockingPortal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SampleStore.indexed

    async def indexed(store: SampleStore, index: SampleIndex, within_s: float = 1.0) -> SampleIndex:
        if index.revision:
            await asyncio.Event().wait()  # the older parts
        return replace(await whole(store, index, 60.0), pending=3)

    async def look() -> str:
        await open_store(settings(tmp_path).store).put_batch("one", many(20))
        return await _page(Source("run", "http://there", _running().ask), "/leaderboard", tmp_path)

    monkeypatch.setattr(SampleStore, "indexed", indexed)
    assert "From the newest samples alone, as the store was still being read at" in portal.call(look)
    monkeypatch.undo()
    assert "From the samples stored by" in portal.call(look)


@pytest.mark.usefixtures("impatient")
def test_nothing_is_right_before_everything_has_answered(portal: BlockingPortal, tmp_path: Path) -> None:
    async def look() -> str:
        told = _Told({})
        told.hangs = True
        return await _page(Source("run", "http://there", told.ask), "/", tmp_path)

    text = portal.call(look)
    assert "Nothing is wrong" not in text
    assert "Not everything has answered yet" in text


def test_a_run_that_has_ended_has_no_figures_of_now(portal: BlockingPortal, tmp_path: Path) -> None:
    async def look() -> tuple[str, str]:
        told = _running()
        source = Source("run", "http://there", told.ask)
        await source.poll()
        told.error = httpx.ConnectError("All connection attempts failed")
        await source.poll(now=True)
        return await _page(source, "/", tmp_path), await _page(source, "/why", tmp_path)

    now, why = portal.call(look)
    assert "All connection attempts failed; it last answered" in now
    assert "Endpoints" not in now
    assert "Nothing waits" not in why


@pytest.mark.parametrize("ending", ["drained", "closed", "killed"])
def test_a_run_that_ended_while_nobody_looked_is_red_only_if_it_was_killed(
    portal: BlockingPortal, tmp_path: Path, ending: str
) -> None:
    made, gone = settings(tmp_path), httpx.ConnectError("All connection attempts failed")

    async def look() -> tuple[Finding, str]:
        status = worlds.large_status(2, 2)
        with closing(CampaignJournal(made.journal, status.campaign)) as journal:
            journal.steer(ControlOrder("drain", what="drain"), "ops", status.started_at - 10)
            if ending == "drained":
                journal.steer(ControlOrder("drain", what="drain", reason="new disks"), "ops", status.started_at + 10)
        _opened_and_ended(made.journal, status.campaign, is_killed=ending == "killed")
        async with MonitorClient(made, "http://127.0.0.1:9") as monitor:
            source = RunSource(monitor, made.journal)
            source.said, source.seen_at = status_document(status), time.time() - 3_600
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(monitor, "document", _raising(gone))
                await source.poll(now=True)
            (finding,) = found_in(source)
            return finding, await _page(source, "/", tmp_path)

    finding, page = portal.call(look)
    assert finding.title.endswith(" has ended")
    if ending == "killed":
        assert (finding.severity, finding.todo[:17]) == ("bad", "Its log says why.")
        assert '<span class="chip bad">ended</span>' in page
    else:
        drained = "drained the whole run, by ops (change 2): new disks"
        holds = drained if ending == "drained" else LEFT
        assert (finding.severity, finding.holds, finding.todo) == ("warn", holds, "")
        assert '<span class="chip warn">ended</span>' in page


def _opened_and_ended(place: object, campaign: str, *, is_killed: bool) -> None:
    """Have a process open a journal and serve a run, and end as runs do or by a kill."""
    end = "os.kill(os.getpid(), 9)" if is_killed else "opened.close()"
    code = "import os, pathlib; from headgate.storage import Journal, ServedRun; "
    code += f"opened = Journal(pathlib.Path({str(place)!r}), {campaign!r}); "
    code += f"opened.announce(ServedRun({campaign!r}, 'r-1', 'http://127.0.0.1:9', 'here', 1.0)); {end}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == (-9 if is_killed else 0)


def _raising(error: Exception) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def document(*_: object) -> dict[str, Any]:
        raise error

    return document


def test_a_pause_is_told_since_it_began_and_a_spent_budget_is_no_failing_endpoint(portal: BlockingPortal) -> None:
    at = time.time()
    renewed = {"pause_kind": "errors", "pause_reason": "service errors (pause 4)", "pause_until": at + 60}
    waits = {"pause_kind": "budget", "pause_reason": "3 USD of 3 USD of 24 h, goes on at noon", "pause_until": at + 60}
    status = worlds.large_status(2, 2)
    one, other = (replace(model, is_paused=True) for model in status.models)
    status = replace(
        status,
        models=(
            replace(one, paused_since=at - 7_200, last_error_at=at - 5, **renewed),
            replace(other, paused_since=at - 60, **waits),
        ),
    )

    async def find() -> dict[str, Finding]:
        source = Source("run", "http://there", _Told(status_document(status) | {"controls": None}).ask)
        await source.poll()
        return {finding.key.rpartition(" paused ")[2]: finding for finding in found_in(source)}

    found = portal.call(find)
    failing, waiting = found["service errors"], found["3 USD of 3 USD of 24 h, goes on at noon"]
    assert (failing.severity, failing.since, failing.todo[:20]) == ("bad", at - 7_200, "Look at the endpoint")
    assert (waiting.severity, waiting.since, waiting.todo) == ("warn", at - 60, "It goes on by itself.")


@pytest.mark.parametrize(
    ("unseen_s", "says"), [(2.0, ""), (RAREST_S + 3600, "; it last answered 1h 01m earlier, and nobody looked")]
)
def test_what_went_down_while_nobody_looked_says_so(portal: BlockingPortal, unseen_s: float, says: str) -> None:
    async def find() -> tuple[str, str]:
        told = _running()
        source = Source("run", "http://there", told.ask)
        await source.poll()
        source.seen_at = time.time() - unseen_s
        told.error = httpx.ReadTimeout("")
        await source.poll(now=True)
        (finding,) = found_in(source)
        return finding.holds, finding.todo

    holds, todo = portal.call(find)
    assert holds.startswith(f"it accepts requests but does not answer in time{says}")
    assert "look at its log, its process" in todo


def test_a_placement_whose_ledger_has_died_is_not_shown_as_running(tmp_path: Path) -> None:
    path = tmp_path / "placement.sqlite"
    journal = Journal(path).open()
    assert read_journal(path)[0].requests == []
    journal.close()
    with pytest.raises(JournalError, match="no ledger runs"):
        read_journal(path)


def test_who_looks_whether_a_lock_is_held_keeps_nobody_from_taking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    lock = locks.FileLock(path)
    lock.take()
    assert locks.lock_of(path)[0]
    lock.give_back()
    assert not locks.lock_of(path)[0]
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(locks.time, "sleep", lambda _: os.close(looking))
    lock.take()
    assert lock.is_held
    lock.give_back()


def test_a_run_does_not_give_the_address_of_another_one_s_console(portal: BlockingPortal, tmp_path: Path) -> None:
    async def begin(port: int) -> None:
        async with console_beside(settings(tmp_path, console_port=port)):
            pass

    taken = bound("127.0.0.1", 0)
    try:
        with pytest.raises(InvalidSettingError, match="is in use"):
            portal.call(begin, taken.getsockname()[1])
    finally:
        taken.close()


def test_of_many_dead_jobs_the_page_says_how_many_it_lists(portal: BlockingPortal, tmp_path: Path) -> None:
    dead = [
        {
            "id": f"Alpha.{number}", "team": "Alpha", "task": "Folding", "instance": "3",
            "failures": 3, "max_attempts": 3, "worker": "w", "finished_at": 1.0, "last_error": "boom",
        }
        for number in range(2)
    ]  # fmt: skip
    said = {
        "jobs": {"dead": 5_000}, "dead": dead, "lanes": [], "servers": [], "pools": [],
        "withdrawn": 0, "workers": 1, "waiting_claims": 0,
    }  # fmt: skip

    async def look() -> str:
        return await _page(Source("jobqueue", "http://there", _Told(said).ask), "/workers?find=Alpha.1", tmp_path)

    text = portal.call(look)
    assert "2 of 5,000 are listed here" in text
    assert "Alpha.1" in text.partition("</form>")[2]
    assert "1 worker with jobs" in text


@pytest.fixture(scope="module")
def quiet(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    return serve(serve_console(settings(tmp_path_factory.mktemp("quiet")), port=0))


def test_a_page_that_hears_nothing_any_more_says_so_and_stops_counting(quiet: str, visits: Visits) -> None:
    with visits.page() as page:
        page.clock.install()
        with page.expect_request_finished(lambda asked: "hx-request" in asked.headers):  # its first news
            page.goto(quiet)
        page.wait_for_selector("#link.on")
        page.clock.fast_forward(30_000)
        assert page.locator("body.stale").count() == 0
        for _ in range(5):  # what its first news shows may wait for the clock, and be shown when it goes forward
            page.clock.fast_forward(30_000)
            if page.locator("body.stale").count():
                break
        page.wait_for_selector("body.stale")
        assert "no news since" in page.inner_text("#link")


@pytest.mark.parametrize("part", ["runs", "jobqueues", "elastic"])
def test_a_part_whose_address_is_none_is_refused(tmp_path: Path, portal: BlockingPortal, part: str) -> None:
    async def opened() -> None:
        async with opened_sources(settings(tmp_path), **{part: ["127.0.0.1:9"]}):  # type: ignore[arg-type]
            pass

    with pytest.raises(InvalidInputError, match=r"must be http://HOST:PORT .* \(got '127\.0\.0\.1:9'\)"):
        portal.call(opened)


@pytest.mark.parametrize(
    ("given", "says"), [("", "the request carries no token"), ("hgq_wrong", "not a token of Headgate")]
)
def test_a_part_that_asks_for_a_token_is_not_said_to_be_down(
    tmp_path: Path, portal: BlockingPortal, capsys: pytest.CaptureFixture[str], given: str, says: str
) -> None:
    database = f"sqlite:///{tmp_path}/queue.db"
    assert main(["jobqueue", "token", "create", "operator", "--scopes", "admin", "--database", database]) == 0
    capsys.readouterr()

    async def find() -> Finding:
        async with (
            running_server(ServerSettings(database=database, port=0)) as server,
            opened_sources(settings(tmp_path, jobqueue_token=given), jobqueues=[server.url]) as sources,
        ):
            await sources.fresh()
            (finding,) = found_in(sources.of("jobqueue")[0])
            return finding

    finding = portal.call(find)
    assert says in finding.holds
    assert finding.todo.startswith("Start the console with a token of it: the setting jobqueue_token")
