"""A local Ray cluster of nodes with one CPU each, and runs whose environments are played on them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import ChatReply, Model
from headgate.core.events import Event
from headgate.environments.apart import HOSTS, ApartLimits, HostedEnvironment, Source
from headgate.placement.cluster.tuning import TUNED
from headgate.run import RunResult
from headgate.run.assembly import run_source
from headgate.run.matrix import MatrixTaskProvider
from headgate.sampling import StaticRoster
from headgate.storage import open_store
from tests.run.hosts.hosted_plugin import Slow

STORE_BYTES = 80_000_000
RAY = {**TUNED, "health_check_failure_threshold": 20}
"""A run notices by itself when a host is gone, and a busy machine must not let living nodes be taken for dead."""

SLOW = "hosted:slow"
MODELS = tuple(
    Model(f"m{number}", uid=number, base_url="http://127.0.0.1:1/v1", max_parallel=64) for number in range(2)
)


class Cluster:
    """Ray's own handle, and the folder of its sessions."""

    def __init__(self, ray_cluster: Any, folder: Path, of_each: Mapping[str, Any]) -> None:
        self.ray = ray_cluster
        self.folder = folder
        self._of_each = {"num_cpus": 1, "object_store_memory": STORE_BYTES, **of_each}
        self.nodes: list[Any] = []

    @property
    def address(self) -> str:
        return str(self.ray.address)

    def add(self) -> None:
        self.nodes.append(self.ray.add_node(**self._of_each))

    def kill(self, node: Any) -> None:
        self.nodes.remove(node)
        self.ray.remove_node(node, allow_graceful=False)


@contextmanager
def cluster(nodes: int, **of_each: Any) -> Iterator[Cluster]:
    """A head and so many nodes, which can be killed; a head that is a node itself, where there are to be no others."""
    from ray.cluster_utils import Cluster as RayCluster

    folder = tempfile.mkdtemp(prefix="hgh", dir="/tmp")  # sockets lie there, whose paths are short
    given = {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    given["RAY_raylet_start_wait_time_s"] = "120"  # a machine that tests share is slow at times
    kept = {name: os.environ.get(name) for name in (*given, "RAY_ADDRESS", "PYTHONPATH")}
    os.environ.pop("RAY_ADDRESS", None)
    root = Path(__file__).parents[3]
    paths = [str(root / "lib"), str(root), *filter(None, [kept["PYTHONPATH"]])]
    os.environ |= given | {"PYTHONPATH": os.pathsep.join(paths)}
    head = {
        **({"num_cpus": 0} if nodes else {"num_cpus": 1, **of_each}),
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
        "_system_config": RAY,
    }
    made = RayCluster(initialize_head=True, head_node_args=head)
    there = Cluster(made, Path(folder), of_each)
    try:
        for _ in range(nodes):
            there.add()
        yield there
    finally:
        made.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class Head:
    """A cluster of one node, in processes of its own that are killed together; at the same address each time anew."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder
        self.address = f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            *(str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={self.port}"),
            *("--num-cpus=2", "--num-gpus=1", f"--object-store-memory={STORE_BYTES}", "--include-dashboard=false"),
            *("--min-worker-port=0", "--max-worker-port=0", f"--temp-dir={self.folder}"),
        ]
        for attempt in (1, 2, 3):
            started = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            if not started.returncode:
                return
            self.kill()  # Ray gives its agents 15 s, of which a busy machine may take more
            assert attempt < 3, started.stderr

    def kill(self) -> None:
        for word in ("site-packages/ray/", "ray::"):
            for process in commands_of(self, word):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


@contextmanager
def head() -> Iterator[Head]:
    """Such a cluster, which is there."""
    folder = tempfile.mkdtemp(prefix="hgh", dir="/tmp")
    given = {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    given["RAY_raylet_start_wait_time_s"] = "120"
    made = Head(Path(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        for name, value in given.items():
            patch.setenv(name, value)
        try:
            made.start()
            yield made
        finally:
            made.kill()
            shutil.rmtree(folder, ignore_errors=True)


class SaysHi:
    """Answers at once. Implements `ChatSource`."""

    def chat(self, model, task, emit, *, trace_id=""):
        async def said(messages):
            return ChatReply("hi")

        return said


def slow_environment(packages: Mapping[str, str] = {}) -> HostedEnvironment:
    source = Source("environment", SLOW, "tests.run.hosts.hosted_plugin:slow", tuple(packages.items()))
    return HostedEnvironment(Slow(SLOW).spec, HOSTS.of(source, ApartLimits()))


async def sampled(
    folder: Path, address: str, told: list[Event], *, tasks: int, environment: Any = None, **settings: Any
) -> RunResult:
    """Run a matrix of two models to its end; `told` gets the events."""

    class Sink:
        handlers = {Event: lambda recorded: told.append(recorded.event)}  # noqa: RUF012

        def close(self):
            pass

    written = {"environment_hosts": "ray", "ray_address": address, "num_evaluation_workers": 8, **settings}
    made = Settings(campaign="hosts", journal=folder / "journal", store=str(folder / "samples"), **written)
    return await run_source(
        made,
        roster=StaticRoster(MODELS),
        environments={SLOW: environment or slow_environment()},
        store=open_store(made.store),
        source=MatrixTaskProvider([SLOW], tasks),
        judging=None,
        stop_when_idle=True,
        asked=lambda _: SaysHi(),
        sinks=[Sink()],
    )


async def stored(folder: Path) -> list[tuple[Any, ...]]:
    columns = ["model", "sequence", "score", "error_kind"]
    return (await open_store(str(folder / "samples")).scan(columns=columns)).frame.select(columns).rows()


def commands_of(there, word):
    """The processes of the cluster and of this one whose command has a word in it."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                if word in command and str(there.folder).encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = command
            except OSError:
                continue
    return found


LEFT = """
import sys
import ray
from headgate.placement import connect, connect_ray, has_ledger
connect_ray(sys.argv[1], log_to_driver=False)
print(sorted(name for name in ray.util.list_named_actors() if name.startswith("headgate-")), has_ledger())
print(sorted(g["state"] for g in ray.util.placement_group_table().values() if g["state"] != "REMOVED"))
"""


def left_in(there):
    """What placement has left in the cluster."""
    command = [sys.executable, "-c", LEFT, there.address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
