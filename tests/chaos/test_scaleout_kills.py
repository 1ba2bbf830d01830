"""kill -9 of what a run stands on that serves its models and plays its environments on Ray: nodes, engines, itself."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.models import is_local_model_installed
from headgate.models.local_model import weights_path
from headgate.storage import open_store
from tests.chaos.campaign_process import Place
from tests.chaos.test_runner_kills import endpoint
from tests.house.tree import ROOT
from tests.run.hosts.site import Cluster, Head, cluster, commands_of, head, left_in

__all__ = ["endpoint"]

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

TINY = f"{shlex.quote(sys.executable)} -S {shlex.quote(str(ROOT / 'tests/run/tiny_engine.py'))} {{port}}"
SERVED = "{gpus: 1, replicas: 1-2, idle_s: 2, slots: 2, start_s: 60, "
GPUS_EACH = 1

_log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def there() -> Iterator[Cluster]:
    with cluster(2, num_gpus=GPUS_EACH) as made:
        yield made


def _place(there: Cluster | Head, folder: Path, engine: str, environment: str) -> Place:
    serve = SERVED + (
        f"engine: command, command: '{TINY}'}}"
        if engine == "tiny"
        else f"engine: llama.cpp, weights: {weights_path()}}}"
    )
    return Place(
        folder,
        "",
        str(folder / "samples"),
        rates=f"{environment}=200000",
        environment=environment,
        models=f"  - {{name: policy, serve: {serve}, options: {{max_tokens: 3}}}}",
        settings=(
            "engine_hosts=ray",
            "environment_hosts=ray",
            "episodes_apart=all",
            f"ray_address={there.address}",
            "sink_batch_size=20",
        ),
    )


def _processes(there: Cluster | Head, engine: str) -> list[int]:
    return sorted(commands_of(there, "tiny_engine.py" if engine == "tiny" else "serve-model"))


def _until_quiet(there: Cluster | Head, engine: str) -> None:
    """Return when no process of an engine or a host is left, and no placement group that would hold a GPU."""
    until = time.monotonic() + 60
    while left := (_processes(there, engine), commands_of(there, "environments.apart"), left_in(there)[1]):
        if left == ([], {}, "[]"):
            return
        assert time.monotonic() < until, left
        time.sleep(1.0)


@pytest.mark.parametrize(("victim", "engine"), [("run", "tiny"), ("node", "tiny"), ("engine", "llama.cpp")])
async def test_kills_lose_and_double_nothing_and_no_gpu_is_left_held(
    there: Cluster, tmp_path: Path, victim: str, engine: str, kills: int, chaos_seed: int
) -> None:
    if engine == "llama.cpp" and not is_local_model_installed():
        pytest.skip("needs the extra `model`")
    place = _place(there, tmp_path, engine, "affine:sat" if engine == "tiny" else "reasoning-gym:chain_sum")
    rng, run = random.Random(chaos_seed), place.start()
    for number in range(kills):
        run.wait_for_samples(at_least=run.count + 3)
        _log.info("%s %d killed after %d samples", victim, number + 1, len(place.acknowledged))
        await asyncio.sleep(rng.uniform(0.0, 1.0))
        if victim == "run":
            run.kill_after(0.0)
            run = place.start()
        elif victim == "node":
            there.kill(rng.choice(there.nodes))
            there.add()
        else:
            os.kill(rng.choice(_processes(there, engine)), signal.SIGKILL)
    run.wait_for_samples(at_least=run.count + 3)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.tail
    assert place.drain(15) == 0
    frame = (await open_store(place.store).scan()).frame
    place.assert_nothing_lost_or_doubled(frame)
    assert frame["score"].null_count() == 0
    assert len(place.acknowledged) >= 3 * kills
    _until_quiet(there, engine)
    _log.info("%d kills: %d samples acknowledged, %d stored", kills, len(place.acknowledged), len(frame))


async def test_a_run_whose_ray_head_dies_goes_on_with_what_is_elsewhere_and_ends_in_order(
    endpoint: str, tmp_path: Path
) -> None:
    with cluster(1, num_gpus=GPUS_EACH) as own:
        place = _place(own, tmp_path, "tiny", "affine:sat")
        place.settings = tuple(one for one in place.settings if "environment_hosts" not in one)
        roster = tmp_path / "roster.yaml"
        other = f"  - {{name: other, base_url: '{endpoint}', model: baseline-greedy}}\n"
        roster.write_text(f"{roster.read_text()}{other}")
        run = place.start()
        run.wait_for_samples(at_least=4)
        for head in commands_of(own, "/gcs_server"):
            os.kill(head, signal.SIGKILL)
        for _ in range(90):
            await asyncio.sleep(1.0)
            assert run.process.poll() is None, run.tail
        run.wait_for_samples(at_least=run.count + 3)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 0, run.tail
        assert [line for line in run.tail if "campaign_stopped" in line]
        place.assert_nothing_lost_or_doubled((await open_store(place.store).scan()).frame)


@pytest.mark.parametrize("away_s", [0.0, 75.0])
async def test_a_run_places_its_engines_and_hosts_anew_when_another_cluster_answers_at_the_same_address(
    tmp_path: Path, away_s: float
) -> None:
    with head() as there:
        place = _place(there, tmp_path, "tiny", "affine:sat")
        run = place.start()
        run.wait_for_samples(at_least=4)
        there.kill()
        await asyncio.sleep(away_s)
        there.start()
        run.wait_for_samples(300, at_least=run.count + 10)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 0, run.tail
        assert place.drain(15) == 0
        frame = (await open_store(place.store).scan()).frame
        place.assert_nothing_lost_or_doubled(frame)
        assert frame["score"].null_count() == 0
        _until_quiet(there, "tiny")
