"""What tests of several rooms share: one Prefect server for all of them, and models that answer."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import pytest

from headgate.core import secrets
from tests.spreading import Spreading, group, longest_first

if TYPE_CHECKING:
    from headgate_bench.postgres import PrivatePostgres

# Laws are checked by what they say and not by the clock: tests share their machine.
for _profile, _examples in (("house", 25), ("thorough", 100)):
    hypothesis.settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        print_blob=True,
    )
hypothesis.settings.load_profile("house")

# In memory, where there is room for them and programs may run there, the files of a thousand journals wait for no disk.
_IN_MEMORY: Final = Path("/dev/shm")
if (
    _IN_MEMORY.is_dir()
    and shutil.disk_usage(_IN_MEMORY).free > 4e9
    and not os.statvfs(_IN_MEMORY).f_flag & os.ST_NOEXEC
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))

# What is compiled is kept, also where the environment says otherwise: each process of a run would compile all tests,
# which takes longer than to import them, and each process that a test starts would compile what it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No test speaks TLS to the world. Each client of httpx or Prefect would read the 140 authorities of the world first,
# which takes 25 ms of the processor: thousands of them, minutes.
NO_AUTHORITY: Final = str(Path(__file__).with_name("no_authority.pem"))
os.environ |= dict.fromkeys(("SSL_CERT_FILE", "PREFECT_API_SSL_CERT_FILE", "AWS_CA_BUNDLE"), NO_AUTHORITY)

# Nobody extends pydantic here. To find out, each process would read what all installed packages declare.
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"

# Read when Prefect is imported: no test starts a server without asking for one, or tells anybody about it.
os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "false"
os.environ["DO_NOT_TRACK"] = "1"


OWN_COMMANDS: Final = ("long", "slurm", "gpu")
"""Marks of tests that run by `make test-long`, `make test-slurm` and `make test-gpu`, which ask for them by `-m`."""

WITH_REAL_SERVERS: Final = ("slow", "chaos")
"""Marks of tests whose servers and processes may have to wait for the machine: one that fails runs once more, and the
end of the run names it with its traceback. What is named there time and again is a defect."""


SHARED_SERVERS: Final = ("prefect_server", "ray_cluster")
"""Fixtures of the session that only the tests of one group of `tests/spreading.py` ask for."""

TESTS: Final = Path(__file__).parent


@pytest.fixture(autouse=True, scope="session")
def _own_audit_trail(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what tests change out of the trail of this folder."""
    os.environ["HEADGATE_AUDIT_FILE"] = str(tmp_path_factory.mktemp("audit") / "audit.jsonl")


@pytest.fixture(autouse=True)
def _own_secrets() -> Iterator[None]:
    """Forget the secrets of a test with its end: their digits would be masked in what other tests print."""
    before = secrets._known.copy()
    yield
    if secrets._known != before:
        secrets._known.intersection_update(before)
        secrets._forms = secrets._Forms.of(secrets._known.copy())


@pytest.fixture
def audit_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The audit trail of one test, empty."""
    file = tmp_path / "trail" / "audit.jsonl"
    monkeypatch.setenv("HEADGATE_AUDIT_FILE", str(file))
    return file


_ALL_OF_A_FILE: Final = re.compile(r"^pytestmark = .*pytest\.mark\.(long|slurm|gpu)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which nothing would be tried: each process would."""
    asked_for = any(collection_path.name in argument for argument in config.args)
    if collection_path.suffix != ".py" or asked_for:
        return None
    found = _ALL_OF_A_FILE.search(collection_path.read_text("utf-8"))
    return True if found and found[1] not in config.getoption("markexpr") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has a command of its own; let Prefect's clients leave connections open in the tests of them.

    Processes that share the work begin with the longest.
    """
    for mark in OWN_COMMANDS:
        if mark not in config.getoption("markexpr"):
            left_out = [item for item in items if item.get_closest_marker(mark)]
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
    for item in items:
        if "prefect_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
        if any(item.get_closest_marker(mark) for mark in WITH_REAL_SERVERS):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))
    if config.getoption("dist", "no") == "loadfile" or hasattr(config, "workerinput"):
        longest_first(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[object]:
    """Collect no garbage while tests are collected, whose million objects stay: it takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Begin with another folder in each process, so that each finds compiled what the others have read before it.

    In a fresh checkout to compile the tests takes longer than to import them.
    """
    report = yield
    if getattr(collector, "path", None) == TESTS and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        share = len(report.result) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]) * int(worker.removeprefix("gw"))
        report.result[:] = report.result[share:] + report.result[:share]
    return report


COUNT_LEFT_OUT: Final = gc.get_freeze_count


def pytest_collection_finish() -> None:
    """Leave what is there already out of garbage collection, which it would make a second long each time.

    Each run of a campaign asks whether the program has left anything out. To count a million objects takes 0.1 s.
    """
    gc.freeze()
    gc.get_freeze_count = lambda: 1
    atexit.register(gc.unfreeze)  # some libraries tell at the end what was left over of them


async def _told() -> None:
    """Return once Prefect's threads of this process have sent what they hold; without a server they try for minutes."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    await APILogHandler.aflush()
    await asyncio.to_thread(EventsWorker.drain_all, timeout=5)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A real Prefect server with the work pool of `prefect.yaml`; starting it takes about ten seconds, once."""
    from headgate.orchestration import private_server
    from headgate.orchestration.deployments import ensure_pool

    with asyncio.Runner() as runner:
        running = private_server(tmp_path_factory.mktemp("prefect"))
        server = runner.run(running.__aenter__())
        try:
            with server.as_client():
                runner.run(ensure_pool(), context=contextvars.copy_context())
            yield server
            runner.run(_told())
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
def prefect(prefect_server: object) -> Iterator[object]:
    """The server, with this process as its client."""
    with prefect_server.as_client():  # type: ignore[attr-defined]
        yield prefect_server


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Collect the connections that Prefect leaves open where their warnings are ignored, and not in a later test.

    A process that has done all tests that share a server ends it: idle, a cluster takes 7 % of a core to the end.
    """
    yield
    if "prefect_server" in getattr(item, "fixturenames", ()):
        gc.collect()
    if hasattr(item.config, "workerinput") and nextitem is not None and group(item.nodeid) != group(nextitem.nodeid):
        for name in SHARED_SERVERS:
            for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
                fixture.finish(item._request)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def prefect_worker(prefect_server: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a real worker that has the deployments of `prefect.yaml` that tests start, their schedules off.

    It ends with the module: of what others deploy on the server it would take the runs that fall due.
    """
    from headgate.orchestration.deployment_file import read_deployment_file
    from headgate.orchestration.deployments import deploy_all, worker
    from tests.house.tree import ROOT

    folder = tmp_path_factory.mktemp("worker")
    file = read_deployment_file(ROOT / "prefect.yaml")
    started = [d for d in file.deployments if d.name in {"affine-sat", "drain-jobqueue"}]
    off = [d.model_copy(update={"schedules": [], "concurrency_limit": None}) for d in started]
    (folder / "prefect.yaml").write_text(file.model_copy(update={"deployments": off}).as_yaml())
    environ = {k: v for k, v in prefect_server.environ().items() if not k.startswith("HEADGATE_")}  # type: ignore[attr-defined]
    environ["PREFECT_API_SSL_CERT_FILE"] = NO_AUTHORITY
    with asyncio.Runner() as runner:
        running = worker(folder, environ)
        runner.run(running.__aenter__())
        try:
            runner.run(deploy_all(folder / "prefect.yaml", folder, environ))
            yield folder
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
async def baselines() -> AsyncIterator[str]:
    """The address of an endpoint that serves the baseline agents."""
    from headgate.models import serve

    async with serve() as endpoint:
        yield endpoint.base_url


@pytest.fixture
def roster_file(tmp_path: Path, baselines: str) -> Path:
    """A roster of two baseline agents."""
    path = tmp_path / "roster.yaml"
    path.write_text(
        f"""
defaults: {{base_url: "{baselines}", options: {{headgate_task_header: true}}}}
models:
- {{name: solver, model: baseline-solver}}
- {{name: random, model: baseline-random}}
"""
    )
    return path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Spread the tests as `make test` asks for it, when it does."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Spreading(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PrivatePostgres]:
    """A PostgreSQL server that belongs to this run of the tests; it takes about two seconds to make, once."""
    from headgate_bench.postgres import PrivatePostgres

    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PrivatePostgres) -> Iterator[str]:
    """The address of an empty database; nobody is connected to it after the test."""
    with postgres_server.fresh_database() as url:
        yield url


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[object]:
    """A tuned Ray, a head and a node with two logical GPUs, in a folder of its own; it takes ten seconds, once."""
    import ray
    from ray.cluster_utils import Cluster

    from headgate.placement.cluster.tuning import TUNED

    store_bytes = 80_000_000
    # Sockets lie there, whose paths are short.
    folder = tempfile.mkdtemp(prefix="hg", dir="/tmp")
    kept = {name: os.environ.get(name) for name in ("RAY_TMPDIR", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED")}
    os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    head = {
        "num_cpus": 2,
        "object_store_memory": store_bytes,
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
        "_system_config": dict(TUNED),
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=6, num_gpus=2, object_store_memory=store_bytes)
        ray.init(address=cluster.address, namespace="headgate", log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(Path(folder), ignore_errors=True)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
