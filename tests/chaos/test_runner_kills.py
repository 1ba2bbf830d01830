"""kill -9 of the runner at random points, on stores that work, fail, stall and are full."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headgate.core import Secret
from headgate.storage import StoreLocation, open_store
from headgate_bench.postgres import PrivatePostgres
from tests.chaos.campaign_process import Place
from tests.storage.conftest import BUCKET, KEY, SECRET, s3_address
from tests.storage.faults import Fault, proxy_before

__all__ = ["s3_address"]

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_800)]


_log = logging.getLogger(__name__)

CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The baselines, served by a process of their own."""
    import subprocess
    import sys

    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "serve-baselines", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    yield line.strip().rsplit(" ", 1)[-1]
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    process.stdout.close()


async def test_kills_at_random_points_lose_and_double_nothing(
    tmp_path: Path, endpoint: str, kills: int, chaos_seed: int
) -> None:
    place = Place(tmp_path, endpoint, str(tmp_path / "samples"), settings=("sink_batch_size=20",))
    rng = random.Random(chaos_seed)
    for point in range(kills):
        run = place.start()
        if point % 5 != 4:  # every fifth dies while it starts
            run.wait_for_samples()
        run.kill_after(rng.uniform(0.0, 1.5))
    assert place.drain() == 0
    place.assert_nothing_lost_or_doubled((await open_store(place.store).scan()).frame)
    assert len(place.acknowledged) > 10 * kills


@pytest.mark.long
async def test_kills_of_processes_that_share_a_journal_and_of_its_server_lose_and_double_nothing(
    tmp_path: Path, endpoint: str, kills: int, chaos_seed: int, postgres_server: PrivatePostgres
) -> None:
    """Two runs of a campaign on one PostgreSQL journal; one is killed, or their connections, or the server."""
    with postgres_server.fresh_database() as url:
        settings = ("sink_batch_size=20", "journal_lease_s=2")
        place = Place(tmp_path, endpoint, str(tmp_path / "samples"), settings=settings, journal=url)
        rng = random.Random(chaos_seed)
        runs = [place.start(), place.start()]
        for victim in ("run", "connections", "server"):
            for _ in range(kills):
                for run in runs:
                    run.wait_for_samples(at_least=1 + run.count)
                await asyncio.sleep(rng.uniform(0.0, 1.0))
                if victim == "run":
                    runs[0].kill_after(0.0)
                    runs = [runs[1], place.start()]
                elif victim == "connections":
                    with psycopg.connect(url) as database:
                        database.execute(CUT)
                else:
                    postgres_server.stop(immediately=True)
                    await asyncio.sleep(rng.uniform(0.0, 2.0))
                    postgres_server.start()
            _log.info("%d kills of the %s: %d samples acknowledged", kills, victim, len(place.acknowledged))
        for run in runs:
            run.wait_for_samples(at_least=1 + run.count)  # all of them are up
            run.process.send_signal(signal.SIGTERM)
        assert [run.wait() for run in runs] == [0, 0], [run.tail for run in runs]
        assert place.drain() == 0
        frame = (await open_store(place.store).scan()).frame
        place.assert_nothing_lost_or_doubled(frame)
        _log.info("%d samples acknowledged, %d stored", len(place.acknowledged), len(frame))
        assert len(place.acknowledged) > 10 * kills


@pytest.mark.long  # `test_interrupting.py` terminates a run in the process of the test
async def test_a_terminated_run_drains_and_exits_cleanly(tmp_path: Path, endpoint: str) -> None:
    place = Place(tmp_path, endpoint, str(tmp_path / "samples"))
    run = place.start()
    run.wait_for_samples()
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0, "".join(run.tail)
    stored = (await open_store(place.store).scan()).frame
    assert set(place.acknowledged) <= set(stored["task_id"].to_list())
    assert list((tmp_path / "journal").rglob("holders/*")) == []


@pytest.mark.long
async def test_kills_while_the_store_answers_503_and_stalls_lose_nothing(
    tmp_path: Path, endpoint: str, kills: int, chaos_seed: int, s3_address: tuple[str, int]
) -> None:
    with proxy_before(s3_address) as proxy:
        place = Place(
            tmp_path,
            endpoint,
            f"s3://{BUCKET}/chaos-{tmp_path.name}",
            settings=("sink_batch_size=20", f"s3_endpoint_url={proxy.url}"),
            variables={
                "HEADGATE_S3_ACCESS_KEY_ID": KEY,
                "HEADGATE_S3_SECRET_ACCESS_KEY": SECRET,
                "AWS_DEFAULT_REGION": "us-east-1",
            },
        )
        rng = random.Random(chaos_seed)
        for _ in range(kills):
            run = place.start()
            run.wait_for_samples()
            fault: Fault = rng.choice(("503", "stall", "cut upload", "lose answer"))
            proxy.fail(fault, rng.randrange(1, 6), method="PUT", path=rng.choice(("samples", "manifests")))
            run.kill_after(rng.uniform(0.2, 2.0))
            proxy.heal()
        assert place.drain() == 0
        host, port = s3_address
        location = StoreLocation(
            place.store,
            endpoint_url=f"http://{host}:{port}",
            region="us-east-1",
            key=Secret(KEY),
            secret=Secret(SECRET),
        )
        store = open_store(location)
        place.assert_nothing_lost_or_doubled((await store.scan()).frame)
        store.close()


@pytest.mark.long
async def test_a_full_store_keeps_everything_in_the_spool_until_there_is_room(
    tmp_path: Path, endpoint: str, kills: int
) -> None:
    place = Place(tmp_path, endpoint, str(tmp_path / "samples"), settings=("sink_batch_size=20",))
    (tmp_path / "samples").mkdir()
    full = f'mount -t tmpfs -o size=64k tmpfs {place.store} && head -c 60k /dev/zero > {place.store}/.fill; exec "$@"'
    for _ in range(min(kills, 5)):
        run = place.start(within=("unshare", "--map-root-user", "--mount", "sh", "-c", full, "sh"))
        run.wait_for_a_failure_of_the_store()
        run.kill_after(0.5)
    assert place.drain() == 0
    place.assert_nothing_lost_or_doubled((await open_store(place.store).scan()).frame)
