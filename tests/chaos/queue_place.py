"""A job queue whose server and workers are processes that can be killed, and what it must have kept at the end."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.jobqueue import Happening, HistoryEntry, Job, JobSpec, JobState, ResourceSpec
from headgate.jobqueue.resource import Resource
from headgate.jobqueue.stores import open_store
from headgate.jobqueue.wire import JobOut
from headgate.jobqueue.worker import RetryPolicy, SyncJobQueueClient, artifact_of
from tests.jobqueue.checker import Told, all_entries, all_jobs, violations

POOL = "policies"


class Process:
    """A process that somebody else started; its number cannot come to mean another one."""

    def __init__(self, pid: int, name: str = "") -> None:
        self.pid = pid
        self.name = name
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:  # it came to its end before anybody looked
            self._handle = -1

    @property
    def is_alive(self) -> bool:
        return not self.has_ended(0)

    def has_ended(self, within_s: float) -> bool:
        """Return whether it ends within some time."""
        return self._handle < 0 or bool(select.select([self._handle], [], [], within_s)[0])

    def send(self, number: int) -> None:
        if self.is_alive:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Kill it, and return when it is gone; legal twice."""
        self.send(signal.SIGKILL)
        assert self.has_ended(20), "a killed process did not end"

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Nursery:
    """Starts processes for an order each; see `queue_nursery`."""

    def __init__(self) -> None:
        self._children: list[Process] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.queue_nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def start_holder(self, **order: Any) -> Process:
        """Start a process that holds a job and its server, and looks at no clock; `go` ends it."""
        self._born += 1
        name = f"holder{self._born}"
        usual = {
            "url": self.url,
            "log": str(self.folder / "told" / f"{name}.jsonl"),
            "lease_s": self.lease_s,
            "results": str(self.results),
            "go": str(self.go),
            "renews": 0.0,
            "releases": False,
        }
        return self.start("holder", name, **{**usual, **order})

    @property
    def go(self) -> Path:
        return self.folder / "go"

    def start(self, kind: str, name: str, **order: Any) -> Process:
        assert self._process.stdin is not None
        line = json.dumps({"kind": kind, "name": name, **order})
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        child = Process(int(self._line()), name)
        self._children.append(child)
        return child

    def kill_all(self) -> None:
        for child in self._children:
            child.kill()
            child.close()
        self._children.clear()

    def close(self) -> None:
        self.kill_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is there at the end, and everything that must not have happened."""

    found: list[str]
    entries: list[HistoryEntry]
    jobs: list[Job]
    resources: list[Resource]

    def count(self, what: Happening) -> int:
        return sum(entry.what is what for entry in self.entries)

    def executions(self) -> Counter[str]:
        """Return how often each job was claimed."""
        return Counter(entry.job_id for entry in self.entries if entry.what is Happening.CLAIMED)


@dataclass
class QueuePlace:
    """A database, a port and a folder: they outlive the processes.

    Attributes:
        folder: of everything.
        database: URL of the store.
        nursery: starts the processes.
        speed: how much faster than real time leases run out.
        lease_s: of the workers' jobs.
    """

    folder: Path
    database: str
    nursery: Nursery
    speed: float
    lease_s: float = 10.0
    port: int = 0
    server: Process | None = None
    submitted: list[str] = field(default_factory=list)
    _born: int = 0

    def __post_init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (self.folder / "told").mkdir(parents=True)
        self.steps.write_text("0")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def steps(self) -> Path:
        """A file of seconds by which the server's wall clock is wrong."""
        return self.folder / "steps"

    @property
    def real_lease_s(self) -> float:
        return self.lease_s / self.speed

    # Processes.

    def start_server(self, failpoint: tuple[str, int] | None = None, **order: Any) -> float:
        """Start the server; return the seconds until it answers, or until it was killed by its failpoint."""
        began = time.monotonic()
        place = {"database": self.database, "port": self.port, "speed": self.speed, "steps": str(self.steps)}
        self.server = self.start("server", "server", failpoint=failpoint, **place, **order)
        while not self.is_healthy():
            assert time.monotonic() < began + 30, self.said()
            if not self.server.is_alive:
                assert failpoint, self.said()
                break
            time.sleep(0.005)
        return time.monotonic() - began

    def is_healthy(self) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            try:
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()

    def start_worker(self, **order: Any) -> Process:
        self._born += 1
        name = f"w{self._born}"
        usual = {
            "url": self.url,
            "log": str(self.folder / "told" / f"{name}.jsonl"),
            "seed": self._born,
            "speed": self.speed,
            "lease_s": self.lease_s,
            "load_s": 0.05,
            "run_s": 0.1,
            "ends": False,
            "results": str(self.results),
        }
        return self.start("worker", name, **{**usual, **order})

    def start_holder(self, **order: Any) -> Process:
        """Start a process that holds a job and its server, and looks at no clock; `go` ends it."""
        self._born += 1
        name = f"holder{self._born}"
        usual = {
            "url": self.url,
            "log": str(self.folder / "told" / f"{name}.jsonl"),
            "lease_s": self.lease_s,
            "results": str(self.results),
            "go": str(self.go),
            "renews": 0.0,
            "releases": False,
        }
        return self.start("holder", name, **{**usual, **order})

    @property
    def go(self) -> Path:
        return self.folder / "go"

    def start(self, kind: str, name: str, **order: Any) -> Process:
        return self.nursery.start(kind, name, said=str(self.folder / "said.log"), **order)

    def said(self) -> str:
        """Return the end of what all processes said: their errors."""
        path = self.folder / "said.log"
        return path.read_text()[-4000:] if path.exists() else ""

    # What a user of the queue does.

    @contextmanager
    def client(self, patience_s: float = 30.0) -> Iterator[SyncJobQueueClient]:
        with SyncJobQueueClient(self.url, retry=RetryPolicy(patience_s, base_s=0.02, max_s=0.1)) as client:
            yield client

    def register(self, servers: int) -> None:
        with self.client() as client:
            client.register([ResourceSpec(POOL, "127.0.0.1", 9_000 + n) for n in range(servers)])

    def submit(self, count: int, *, team: str = "live", payload: str = "{}", max_attempts: int = 1000) -> None:
        """Submit jobs, every fifth of which needs no server."""
        first = len(self.submitted)
        names = [f"{team}-{number}" for number in range(first, first + count)]
        specs = [
            JobSpec(name, team, "t", pool="" if n % 5 == 4 else POOL, payload=payload, max_attempts=max_attempts)
            for n, name in enumerate(names)
        ]
        with self.client() as client:
            client.submit(specs)
        self.submitted += names

    def states(self) -> dict[JobState, int]:
        with self.client() as client:
            return client.statistics().jobs

    def keep_fed(self, least: int = 60) -> None:
        """Submit jobs when few are left."""
        if self.states()[JobState.PENDING] < least:
            self.submit(2 * least)

    def running(self) -> list[JobOut]:
        with self.client() as client:
            return client.jobs(state=JobState.IN_PROGRESS).jobs

    def until(self, is_so: Callable[[], object], within_s: float) -> None:
        """Return when something holds that other processes bring about."""
        deadline = time.monotonic() + within_s
        while not is_so():
            is_served = self.server is not None and self.server.is_alive
            assert time.monotonic() < deadline, f"it did not come about (server lives: {is_served})\n{self.said()}"
            time.sleep(0.01)

    def until_all_ended(self, within_s: float, tend: Callable[[], object] = lambda: None) -> None:
        """Return when no job of the workers waits or runs; `tend` is called now and then."""
        deadline = time.monotonic() + within_s
        while True:
            with self.client() as client:
                lanes = [lane for lane in client.statistics().lanes if lane.team == "live"]
            if not any(lane.pending + lane.in_progress for lane in lanes):
                return
            assert time.monotonic() < deadline, f"not at the end: {lanes}\n{self.said()}"
            tend()
            time.sleep(0.05)

    # What workers were told.

    def facts(self, name: str = "*") -> list[dict[str, Any]]:
        """Return what workers (one of them) have written down; a line that a kill has cut is none."""
        paths = sorted((self.folder / "told").glob(f"{name}.jsonl"))
        lines = [line for path in paths for line in path.read_bytes().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def amount_told(self, name: str = "*") -> int:
        """Return a number that grows with every fact that workers (one of them) write down."""
        return sum(path.stat().st_size for path in (self.folder / "told").glob(f"{name}.jsonl"))

    def told(self) -> list[Told]:
        facts = [fact for fact in self.facts() if fact.get("what") in set(Happening)]
        told = [Told(**{**fact, "what": Happening(fact["what"])}) for fact in facts]
        return [*(Told(Happening.SUBMITTED, job_id) for job_id in self.submitted), *told]

    def judge(self) -> Verdict:
        """Stop the server and compare its books with what everybody was told."""
        if self.server is not None:
            self.server.kill()
        store = open_store(self.database).own("the judge")
        try:
            with closing(store.reader()) as reader:
                entries, jobs, resources = all_entries(reader), all_jobs(reader), list(store.load().resources)
        finally:
            store.close()
        return Verdict(violations(entries, jobs, resources, self.told()), entries, jobs, resources)

    def assert_kept(self, verdict: Verdict) -> None:
        """Nothing is lost or doubled, nobody was told what is not so, all is done, and every server is free."""
        assert verdict.found == []
        live = [job for job in verdict.jobs if job.spec.team == "live"]
        assert {job.job_id for job in live} >= {name for name in self.submitted if name.startswith("live")}
        assert [job.job_id for job in live if job.state is not JobState.DONE] == []
        assert [one.resource_id for one in verdict.resources if not one.is_free] == []
        for job in live:
            if job.result_ref:
                assert artifact_of(Path(job.result_ref)).checksum == job.checksum, job.job_id
