"""kill -9 of the Prefect server, of its worker, and of the flow run's process, at random points of a window."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import orjson
import pytest

from headgate.orchestration import private_server
from headgate.orchestration.deployment_file import read_deployment_file
from headgate.orchestration.deployments import awaited_runs, deploy_all, ensure_pool, start_run, worker
from headgate.storage import open_store
from headgate_bench.postgres import PrivatePostgres
from tests.chaos.campaign_process import Place
from tests.chaos.test_runner_kills import endpoint
from tests.house.tree import ROOT

__all__ = ["endpoint"]

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

_log = logging.getLogger(__name__)

VICTIMS = {"server": b"uvicorn", "worker": b"worker\0start", "flow run": b"prefect.engine"}


def processes_of(folder: Path, words: bytes, mark: bytes = b"") -> Iterator[int]:
    """Yield processes of this test whose command line holds `words`, those of one worker by its `mark`."""
    mark = mark or f"PREFECT_HOME={folder}".encode()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                entry.name.isdigit()
                and words in (entry / "cmdline").read_bytes()
                and b"keeper" not in (entry / "cmdline").read_bytes()
                and mark in (entry / "environ").read_bytes()
            ):
                yield int(entry.name)


async def started_episodes(events: Path, more_than: int) -> None:
    """Return when the flow run has written that it sampled."""
    async with asyncio.timeout(120):
        while len(acknowledged(events)) <= more_than:  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(0.1)


def acknowledged(events: Path) -> list[str]:
    """The samples that the flow runs have told of; a line that was cut by a kill is none."""
    found = []
    for line in events.read_bytes().splitlines() if events.exists() else ():
        with suppress(orjson.JSONDecodeError):
            event = orjson.loads(line)
            if event.get("event") == "sample_accepted":
                found.append(event["fields"]["task_id"])
    return found


def write_deployments(path: Path) -> None:
    """Write the deployments of the project without schedules and limits."""
    file = read_deployment_file(ROOT / "prefect.yaml")
    free = [d.model_copy(update={"schedules": [], "concurrency_limit": None}) for d in file.deployments]
    path.write_text(file.model_copy(update={"deployments": free}).as_yaml())


@pytest.mark.parametrize("victim", VICTIMS)
async def test_kills_of_server_worker_and_run_lose_and_double_nothing(
    tmp_path: Path, endpoint: str, kills: int, chaos_seed: int, victim: str
) -> None:
    place = Place(tmp_path, endpoint, str(tmp_path / "samples"))
    events = tmp_path / "events.jsonl"
    variables = {
        "HEADGATE_ROSTER": str(tmp_path / "roster.yaml"),
        "HEADGATE_STORE": place.store,
        "HEADGATE_JOURNAL": str(tmp_path / "journal"),
        "HEADGATE_RATES": place.rates,
        "HEADGATE_EVENTS_FILE": str(events),
        "BATCH_FLUSH_INTERVAL": "0.1",
    }
    write_deployments(tmp_path / "prefect.yaml")
    rng = random.Random(chaos_seed)
    servers, workers, runs = (kills if victim == name else 1 for name in VICTIMS)
    for number in range(servers):
        async with private_server(tmp_path / "prefect") as server:
            environ = server.environ() | variables
            with server.as_client():
                if number == 0:
                    await ensure_pool()
                    await deploy_all(tmp_path / "prefect.yaml", tmp_path, environ)
                for _ in range(workers):
                    async with worker(tmp_path, environ, drain_s=5.0):
                        for _ in range(runs):
                            before = len(acknowledged(events))
                            await start_run("sample-environment/affine-sat", {"duration_s": 8.0})
                            await started_episodes(events, before)
                            await asyncio.sleep(rng.uniform(0.0, 1.0))
                            pids = list(processes_of(server.folder, VICTIMS[victim]))
                            assert pids, f"no {victim} to kill"
                            for pid in pids:
                                os.kill(pid, signal.SIGKILL)
                            _log.info("%s killed after %d samples", victim, len(acknowledged(events)))
    await until_ended(tmp_path / "prefect")
    place.acknowledged = acknowledged(events)
    assert len(place.acknowledged) > 5 * kills
    assert place.drain() == 0
    frame = (await open_store(place.store).scan()).frame
    place.assert_nothing_lost_or_doubled(frame)
    _log.info("%d samples acknowledged, %d stored", len(place.acknowledged), len(frame))


async def until_ended(folder: Path) -> None:
    """Return when no process of Prefect is left; a flow run outlives its worker, to the end of its window."""
    async with asyncio.timeout(60):
        while list(processes_of(folder, b"prefect")):  # noqa: ASYNC110 - they are nobody's children
            await asyncio.sleep(0.5)


@pytest.fixture
def postgres_with_extensions(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivatePostgres]:
    """A server that has what Prefect needs: the one of the wheel has no extensions."""
    for found in sorted(Path("/usr/share/postgresql").glob("*/extension/pg_trgm.control")):
        monkeypatch.setenv("HEADGATE_POSTGRES_BIN", f"/usr/lib/postgresql/{found.parts[-3]}/bin")
        with PrivatePostgres() as server:
            yield server
        return
    pytest.skip("Prefect on PostgreSQL needs the extension pg_trgm (Debian: postgresql)")


async def test_a_machine_of_three_that_sample_one_campaign_is_lost_and_no_sample_is(
    tmp_path: Path, endpoint: str, postgres_with_extensions: PrivatePostgres
) -> None:
    """Three workers of one pool, as on three machines; journal and Prefect are in PostgreSQL; all of one is killed."""
    server = postgres_with_extensions
    with server.fresh_database() as url, server.fresh_database() as prefect_url:
        place = Place(tmp_path, endpoint, str(tmp_path / "samples"), settings=("journal_lease_s=3",), journal=url)
        events = [tmp_path / f"events-{number}.jsonl" for number in range(3)]
        variables = {
            "HEADGATE_ROSTER": str(tmp_path / "roster.yaml"),
            "HEADGATE_STORE": place.store,
            "HEADGATE_JOURNAL": url,
            "HEADGATE_JOURNAL_LEASE_S": "3",
            "HEADGATE_RATES": place.rates,
            "HEADGATE_STATUS_INTERVAL_S": "1",
            "BATCH_FLUSH_INTERVAL": "0.1",
        }
        write_deployments(tmp_path / "prefect.yaml")
        database = prefect_url.replace("postgresql:", "postgresql+asyncpg:", 1)
        async with private_server(tmp_path / "prefect", database=database) as prefect, AsyncExitStack() as machines:
            environ = prefect.environ() | variables
            with prefect.as_client():
                await ensure_pool()
                await deploy_all(tmp_path / "prefect.yaml", tmp_path, environ)
                for number in range(3):
                    own = {"TEST_MACHINE": str(tmp_path / f"m{number}"), "HEADGATE_EVENTS_FILE": str(events[number])}
                    (tmp_path / f"m{number}").mkdir()
                    await machines.enter_async_context(worker(tmp_path / f"m{number}", environ | own, drain_s=10.0))
                    run = await start_run("sample-environment/affine-sat", {"duration_s": 40.0})
                    await awaited_runs([run.id], lambda runs: all(one.state_name == "Running" for one in runs), 60.0)
                    await asyncio.sleep(1.0)
                busy = [
                    number
                    for number in range(3)
                    if list(processes_of(tmp_path, b"", f"TEST_MACHINE={tmp_path}/m{number}".encode()))
                ]
                assert busy == [0, 1, 2]
                sampling = [number for number in range(3) if acknowledged(events[number])]
                lost = sampling[0]
                for pid in processes_of(tmp_path, b"", f"TEST_MACHINE={tmp_path}/m{lost}".encode()):
                    os.kill(pid, signal.SIGKILL)
                others = [path for number, path in enumerate(events) if number != lost]
                before = sum(len(acknowledged(path)) for path in others)
                await asyncio.sleep(6.0)
                if len(sampling) > 1:
                    assert sum(len(acknowledged(path)) for path in others) > before
        place.acknowledged = [task_id for path in events for task_id in acknowledged(path)]
        assert len(place.acknowledged) == len(set(place.acknowledged))
        assert place.drain() == 0
        place.assert_nothing_lost_or_doubled((await open_store(place.store).scan()).frame)
