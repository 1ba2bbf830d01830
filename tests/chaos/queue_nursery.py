"""Forks servers and workers of a job queue to be killed: importing the libraries once makes many kills cheap.

Reads one order per line of stdin, a JSON object with `kind` and what that kind needs, and answers each with the id of
the new process. All of them end with this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import queue
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from headgate.jobqueue import Happening, Ledger, object_text, writer
from headgate.jobqueue.server import ServerSettings, serve, serving
from headgate.jobqueue.stores import postgres, sqlite
from headgate.jobqueue.wire import ClaimIn, CompleteIn, JobLeaseIn, ReleaseIn, ReserveIn
from headgate.jobqueue.worker import HeldJob, JobQueueClient, Worker, publish, publish_result, result_path

_PR_SET_PDEATHSIG = 1


class ChaosClock:
    """Monotonic time that runs `speed` times as fast, and wall time that `steps`, a file of seconds, puts off."""

    def __init__(self, speed: float, steps: str = "") -> None:
        self._speed = speed
        self._steps = Path(steps) if steps else None

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    def wall(self) -> float:
        return time.time() + (float(self._steps.read_text() or 0) if self._steps else 0.0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


class Log:
    """What a process was told: a line per fact, in the file before the process goes on."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, **fact: Any) -> None:
        os.write(self._file, json.dumps(fact).encode() + b"\n")


# Servers.


class _Inbox:
    """The writer's inbox, which waits for deadlines as its clock runs."""

    def __init__(self, speed: float) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._speed = speed
        self.put, self.get_nowait, self.qsize = self._queue.put, self._queue.get_nowait, self._queue.qsize

    def get(self, timeout: float | None) -> Any:
        return self._queue.get(timeout=None if timeout is None else timeout / self._speed)


def serve_queue(order: dict[str, Any]) -> None:
    """Serve the queue; with a failpoint, until this process has come to it for the n-th time."""
    serving.SystemClock = lambda: ChaosClock(order["speed"], order["steps"])
    writer._OVERSLEPT_S *= order["speed"]
    writer._STOOD_STILL_S /= order["speed"]
    serving._SIGN_S /= order["speed"]
    writer.queue = SimpleNamespace(SimpleQueue=lambda: _Inbox(order["speed"]), Empty=queue.Empty)
    if order["failpoint"]:
        _kill_at(*order["failpoint"])
    settings = ServerSettings(
        database=order["database"],
        port=order["port"],
        statistics_every_s=0,
        health_check_every_s=0,
        rate_per_s=1e6,
        rate_burst=10_000_000,
        stop_s=1,
    )
    serve(settings, lambda _: None)


def _kill_at(place: str, number: int) -> None:
    """Have this process killed at the n-th `statement` or `commit`, or `answer` after a commit."""
    left = number

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    if place == "statement":
        sqlite.check_found = counted(sqlite.check_found)
        postgres.columns_of = counted(postgres.columns_of)
    elif place == "commit":
        sqlite.SqliteStore.commit = counted(sqlite.SqliteStore.commit)
        postgres.PostgresStore.commit = counted(postgres.PostgresStore.commit)
    else:
        Ledger.committed = counted(Ledger.committed)


# Workers.


async def work(order: dict[str, Any]) -> None:
    """Work on jobs as outside workers do - load, reserve, run, publish, complete - until killed."""
    log, rng, clock = Log(order["log"]), random.Random(order["seed"]), ChaosClock(order["speed"])
    async with (
        JobQueueClient(order["url"]) as client,
        Worker(client, name=order["name"], lease_s=order["lease_s"], teams=["live"], clock=clock) as worker,
    ):
        async for job in worker.jobs():
            lease = {"job_id": job.id, "lease_id": job.lease.ref.lease_id, "epoch": job.epoch, "worker": order["name"]}
            log.write(what=Happening.CLAIMED, **lease)
            async with job:
                await _evaluate(job, order, rng, log, lease)


async def _evaluate(job: HeldJob, order: dict[str, Any], rng: random.Random, log: Log, lease: dict[str, Any]) -> None:
    await asyncio.sleep(rng.uniform(0, order["load_s"]))
    if job.payload.get("poison") == "raise":
        raise ValueError(f"no such scene for {job.id}")
    if job.payload.get("poison") == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.spec.pool:
        server = await job.reserve_server()
        held = {"resource_id": server.resource_id, "lease_id": server.lease_id, "epoch": server.epoch}
        log.write(what=Happening.RESERVED, **{**lease, **held})
        await asyncio.sleep(rng.uniform(0, order["run_s"]))
        if rng.random() < 0.2:
            await job.release_server()
    dice = rng.random() if order["ends"] else 1.0
    if dice < 0.1:
        await job.fail("the simulator stumbled")
        log.write(what=Happening.FAILED, **lease)
    elif dice < 0.2:
        await job.give_back("somewhere else to be")
        log.write(what=Happening.GIVEN_BACK, **lease)
    else:
        result = {"epoch": job.epoch, "q_score": rng.random()}
        artifact = await publish(job, Path(order["results"]), result) if order["results"] else None
        await job.complete(result, artifact=artifact)
        log.write(what=Happening.COMPLETED, result=object_text(result), **lease)


async def hold(order: dict[str, Any]) -> None:
    """Hold a job and a server without ever looking at a clock; at `go`, do everything that only their holder may."""
    log = Log(order["log"])
    async with (
        JobQueueClient(order["url"]) as client,
        httpx.AsyncClient(base_url=order["url"], timeout=60, trust_env=False) as raw,
    ):
        (claimed,) = (await client.claim(ClaimIn(worker=order["name"], lease_s=order["lease_s"], wait_s=30))).jobs
        lease = JobLeaseIn(job_id=claimed.job.id, lease_id=claimed.lease.lease_id, epoch=claimed.lease.epoch)
        server = (await client.reserve(ReserveIn(**dict(lease), wait_s=30))).reservation
        assert server is not None
        log.write(what="held")
        while not os.path.exists(order["go"]):  # noqa: ASYNC240, PTH110 - this process does nothing else
            if order["renews"]:
                log.write(what="renewed", status=(await client.renew([lease])).renewals[0].status)
            await asyncio.sleep(order["renews"] or 0.01)
        result = {"q_score": 0.0, "from": order["name"]}
        log.write(what="renewal", status=(await client.renew([lease])).renewals[0].status)
        given = {"lease_id": server.lease_id, "epoch": server.epoch}
        release = {"resource_id": server.resource_id, **given}
        if order["releases"]:
            answer = await raw.post("/v1/reservations/release", json=ReleaseIn(**release).model_dump())
            log.write(what="release", status=answer.status_code)
        plain = {"lease_id": lease.lease_id, "epoch": lease.epoch}
        body = CompleteIn(**plain, result=result).model_dump(exclude_unset=True)
        answer = await raw.post(f"/v1/jobs/{lease.job_id}/complete", json=body)
        log.write(what="completion", status=answer.status_code, body=answer.json())
        spec = claimed.job
        path = result_path(Path(order["results"]), spec.team, spec.task, spec.instance or spec.id)
        try:
            publish_result(path, result, {"job_id": spec.id, "epoch": lease.epoch})
        except Exception as error:  # noqa: BLE001 - what is refused, and why, is what the test asks
            log.write(what="publication", status=type(error).__name__)
        else:
            log.write(what="publication", status="written")


_KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "server": serve_queue,
    "worker": lambda order: asyncio.run(work(order)),
    "holder": lambda order: asyncio.run(hold(order)),
}


def _live(order: dict[str, Any], mother: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != mother:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    _KINDS[order["kind"]](order)
    print(f"{order['name']} came to its end by itself", file=sys.stderr)


def main() -> None:
    """Fork a process for every line of stdin."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is reaped at once
    mother = os.getpid()
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _live(order, mother)
                status = 0
            except BaseException:  # noqa: BLE001 - the end of the process: reported
                traceback.print_exc()
            finally:
                with contextlib.suppress(OSError):
                    sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
