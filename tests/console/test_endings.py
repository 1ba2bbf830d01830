"""How runs of a journal end: each is told apart, shown for as long as it should be, and asked again when it is back."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest

from headgate.console.asking import LEFT
from headgate.console.discovery import KEPT_S, JournalSource
from headgate.console.findings import Findings, found_in
from headgate.console.sources import Sources
from headgate.storage import ServedRun
from headgate.telemetry import new_registry, serve_monitor
from tests.console import worlds
from tests.console.conftest import settings
from tests.console.test_discovery import said


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[ServedRun, float]:
    """What a journal says of runs: since when each is dead."""
    said: dict[ServedRun, float] = {}
    monkeypatch.setattr("headgate.console.discovery.served_runs", lambda _: (dict(said), {}))
    return said


@pytest.mark.parametrize(
    ("has_died", "shown"),
    [
        (False, ("warn", LEFT)),
        (True, ("bad", "nothing listens at")),
    ],
)
async def test_how_a_run_ended_is_told_where_it_is_known(
    tmp_path: Path, told: dict[ServedRun, float], has_died: bool, shown: tuple[str, str]
) -> None:
    sources, status = Sources(), worlds.large_status(2, 2)
    journal = JournalSource(settings(tmp_path).journal, settings(tmp_path), sources)  # type: ignore[arg-type]
    sources.add(journal)
    async with serve_monitor(lambda: status, new_registry(), port=0, run_id="r-1") as server:
        run = said(server.address, campaign=status.campaign)
        told[run] = math.inf
        await sources.fresh()
        assert [source.name for source in sources.of("run")] == [status.campaign]
        assert sources.of("run")[0].is_up
    told.clear()
    told |= {run: time.time()} if has_died else {}
    for source in [journal, *sources.of("run")]:
        await source.poll(now=True)
    (finding,) = (finding for source in sources.all for finding in found_in(source))
    assert (finding.severity, finding.holds[: len(shown[1])]) == shown
    (ended,) = sources.of("run")
    assert ended.wait_s == math.inf  # it is asked no more
    later = {"campaign": status.campaign, "run_id": "r-2", "at": time.time() + 1}
    told[said("http://127.0.0.1:9", **later)] = math.inf  # which may sample anything
    await journal.poll(now=True)
    there = [ended.address] * has_died + ["http://127.0.0.1:9"]
    assert [source.address for source in sources.of("run")] == there
    others = replace(status, pairs=tuple(replace(one, environment="other:a") for one in status.pairs))
    for samples, is_shown in ((others, has_died), (status, False)):
        async with serve_monitor(lambda: samples, new_registry(), port=0, run_id="r-2") as server:  # noqa: B023
            told.pop(next(one for one in told if one.run_id == "r-2"))
            told[said(server.address, **later)] = math.inf
            for _ in range(2):
                await journal.poll(now=True)
                await sources.of("run")[-1].poll(now=True)
            await journal.poll(now=True)
            assert (ended in sources.of("run")) is is_shown
    await journal.close()
    assert sources.all == (journal,)


async def test_runs_that_were_killed_are_told_apart_and_until_what_they_sampled_is_sampled_again(
    tmp_path: Path, told: dict[ServedRun, float]
) -> None:
    sources, now, status = Sources(), time.time(), worlds.large_status(2, 2)
    journal = JournalSource(settings(tmp_path).journal, settings(tmp_path), sources)  # type: ignore[arg-type]
    sources.add(journal)

    async def lost() -> list[str]:
        await journal.poll(now=True)
        found = Findings(sources).now(time.time())
        return sorted(one.holds.partition(" since ")[0] for one in found if " was lost" in one.title)

    # Two windows of two machines that were killed alike, both of which had been asked at loopback.
    at = "http://127.0.0.1:8765"
    for node, name in (("node-1", "suite:00"), ("node-2", "suite:00"), ("node-2", "suite:01")):
        told[said(at, node, name, run_id=f"r-{node}-{name}", at=now - 60)] = now - 30
    both = [f"{at} on node-{node}, which sampled suite:0{n}" for node, n in ((1, 0), (2, 0), (2, 1))]
    assert await lost() == both
    told[said("http://127.0.0.1:9", "", "suite:01", at=now - 20)] = math.inf
    assert await lost() == both[:2]

    # One that takes the address of a run that was watched and killed, and samples something else, hides it neither.
    async with serve_monitor(lambda: status, new_registry(), port=0, run_id="r-1") as server:
        killed = said(server.address, "", "suite:00", "suite:01", at=now - 10)
        told[killed] = math.inf
        await journal.poll(now=True)
        await sources.of("run")[-1].poll(now=True)
        assert await lost() == []
    told[killed] = now - 5
    later = said(server.address, "", "suite:02", run_id="r-2", at=now - 1)
    told[later] = math.inf
    # It had taken over from the others, which are not told of again.
    assert await lost() == [f"{server.address} on {gethostname()}, which sampled suite:00, suite:01"]
    told.pop(killed)
    assert await lost() == []
    told[killed] = now - 5
    told.pop(later)
    told[later._replace(environments=("suite:00", "suite:01"))] = math.inf
    assert await lost() == []
    await journal.close()


async def test_a_run_that_ended_is_forgotten_after_a_shift(tmp_path: Path, told: dict[ServedRun, float]) -> None:
    sources, status = Sources(), worlds.large_status(2, 2)
    journal = JournalSource(settings(tmp_path).journal, settings(tmp_path), sources)  # type: ignore[arg-type]
    async with serve_monitor(lambda: status, new_registry(), port=0, run_id="r-1") as server:
        told[said(server.address, campaign=status.campaign)] = math.inf
        await journal.poll(now=True)
        (run,) = sources.of("run")
        await run.poll()
    told.clear()
    await journal.poll(now=True)
    await run.poll(now=True)
    assert (run.is_gone, run.is_over) == (True, True)
    assert run.down_since is not None
    run.down_since -= KEPT_S + 1
    run.seen_at = run.down_since
    await journal.poll(now=True)
    assert sources.of("run") == []


async def test_a_run_whose_lease_had_run_out_is_asked_again(tmp_path: Path, told: dict[ServedRun, float]) -> None:
    sources, status = Sources(), worlds.large_status(2, 2)
    journal = JournalSource(settings(tmp_path).journal, settings(tmp_path), sources)  # type: ignore[arg-type]
    async with serve_monitor(lambda: status, new_registry(), port=0, run_id="r-1") as server:
        run, address = said(server.address, campaign=status.campaign), server.port
        told[run] = math.inf
        await journal.poll(now=True)
        (source,) = sources.of("run")
        await source.poll()
    told[run] = time.time()
    await journal.poll(now=True)
    await source.poll(now=True)
    assert (source.is_gone, source.wait_s) == (True, math.inf)
    told[run] = math.inf
    async with serve_monitor(lambda: status, new_registry(), port=address, run_id="r-1"):
        await journal.poll(now=True)
        assert source.wait_s < math.inf
        await source.poll(now=True)
        assert (source.is_up, source.is_gone, source.ended_by) == (True, False, "")
    await journal.close()
