"""A real job queue on a thread of its own, which tests stop and start again, and whose rows they read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.jobqueue import JobSpec, ResourceSpec
from headgate.jobqueue.server import RunningServer, ServerSettings, running_server
from headgate.jobqueue.worker import JobQueueClient, RetryPolicy, SyncJobQueueClient


class FastClock:
    """Time that runs `speed` times as fast."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


class QueueSite:
    """A server; `client` asks it from the test's own thread."""

    def __init__(self, folder: Path) -> None:
        self.database = f"sqlite:////{str(folder / 'jobs.db').lstrip('/')}"
        self._settings = ServerSettings(
            database=self.database,
            port=0,
            health_check_every_s=0,
            statistics_every_s=0,
            stop_s=1,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self.url = ""

    @property
    def client(self) -> SyncJobQueueClient:
        return SyncJobQueueClient(self.url, retry=RetryPolicy(patience_s=10))

    def async_client(self) -> JobQueueClient:
        return JobQueueClient(self.url)

    def start(self) -> None:
        """Serve, on the same port as before."""
        started: list[RunningServer | BaseException] = []
        ready = threading.Event()

        async def serve() -> None:
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            try:
                async with running_server(self._settings) as server:
                    started.append(server)
                    ready.set()
                    await self._stopping.wait()
            except BaseException as error:
                started.append(error)
                ready.set()
                raise

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), name="queue-site")
        self._thread.start()
        assert ready.wait(20)
        server = started[0]
        assert isinstance(server, RunningServer), server
        self.url = server.url
        self._settings = self._settings.model_copy(update={"port": int(self.url.rpartition(":")[2])})

    def stop(self) -> None:
        """Stop serving; legal twice, and at once."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        if thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
            thread.join(20)
            assert not thread.is_alive()
        self._thread = None

    # What tests put in and look at.

    def submit(self, *job_ids: str, **fields: Any) -> None:
        spec = {"team": "a", "task": "t", "instance": "1", **fields}
        with self.client as client:
            client.submit([JobSpec(job_id, **spec) for job_id in job_ids])

    def register(self, pool: str = "p", servers: int = 1, **fields: Any) -> None:
        with self.client as client:
            client.register([ResourceSpec(pool, "127.0.0.1", 9_000 + n, **fields) for n in range(servers)])

    def withdraw(self, job_id: str) -> None:
        with self.client as client:
            client.withdraw(job_id)

    def job(self, job_id: str) -> Any:
        with self.client as client:
            return client.job(job_id)

    def happenings(self, job_id: str) -> list[str]:
        with self.client as client:
            return [entry.what.value for entry in client.job_history(job_id).entries]

    def until(self, is_so: Callable[[], bool], within_s: float = 20.0) -> None:
        """Return when something holds that another process brings about."""
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.03)

    def until_state(self, job_id: str, state: str, within_s: float = 20.0) -> Any:
        self.until(lambda: self.job(job_id).state == state, within_s)
        return self.job(job_id)


@contextmanager
def queue_site(folder: Path) -> Iterator[QueueSite]:
    site = QueueSite(folder)
    site.start()
    try:
        yield site
    finally:
        site.stop()
