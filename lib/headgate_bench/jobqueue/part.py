"""What each part of the scenario is given."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final
from uuid import uuid4

from headgate.core.errors import InvalidInputError
from headgate_bench.postgres import PrivatePostgres
from headgate_bench.rivals import pgqueuer_jobs, procrastinate_jobs

PARTS: Final = ("postgres", "http", "pickup", "flat", "saturation", "heartbeats", "faults")
STORES: Final = ("sqlite", "postgres")


@dataclass(frozen=True, slots=True)
class JobQueueParameters:
    """Parameters of the scenario."""

    parts: tuple[str, ...] = PARTS  # what is measured
    # Databases of the parts that run on either; without `postgres` no PostgreSQL programs are needed.
    stores: tuple[str, ...] = STORES
    iterations: int = 1  # of the burn-downs, in which all contenders take turns
    jobs: int = 20_000  # of a burn-down in batches
    batch: int = 500  # jobs per claim and per completion
    batch_workers: int = 1  # callers that claim and complete batches side by side
    rival_jobs: int = 2  # of each rival's burn-down in units of a second at its usual rate
    http_s: float = 1.5  # seconds of claims and completions one by one
    http_clients: int = 32  # connections that do so
    pickup_jobs: int = 500  # submitted one by one
    pickup_workers: int = 32  # long-polling connections
    handovers: int = 100  # of a freed policy server
    small: int = 10_000  # jobs queued in the small queue of the flatness
    large: int = 100_000  # jobs queued in the large one
    flat_rounds: int = 10  # claims of 100 jobs of each, in turns
    saturation_hours: float = 0.5  # of the simulated hours in steady state
    saturation_scale: float = 100.0  # how many times faster than in life the served loads and episodes are
    saturation_episodes: int = 5  # that each policy server runs over HTTP, in steady state
    heartbeat_workers: int = 1_000  # each with a connection and a lease
    heartbeat_lease_s: float = 10.0  # renewed three times per period
    heartbeat_s: float = 4.0  # seconds that are measured
    fault_jobs: int = 200  # of each contender's burn-down under kills
    fault_job_s: float = 0.02  # seconds that one takes
    worker_kills: int = 2  # of each contender's workers
    server_kills: int = 1  # of our server
    bar_batch: float = 10_000.0  # jobs claimed and completed per second in batches, at least
    bar_http: float = 500.0  # the same one by one, at least
    bar_pickup_ms: float = 20.0  # 95th percentile, at most
    bar_handover_ms: float = 20.0  # 95th percentile, at most
    bar_flat: float = 1.2  # CPU time of a claim in the large queue over that in the small one, at most
    bar_busy: float = 0.98  # share of the time in which policy servers are busy, at least
    bar_lost: int = 0  # leases and jobs that may be lost, and jobs that may be counted twice

    def check(self) -> None:
        """Refuse parts and stores that there are not.

        Raises:
            InvalidInputError: names the first.
        """
        for what, given, known in (("part", self.parts, PARTS), ("store", self.stores, STORES)):
            for name in given:
                if name not in known:
                    raise InvalidInputError(f"the benchmark has no {what} {name!r}; it has {', '.join(known)}")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The parts that can be measured on the stores."""
        return tuple(part for part in self.parts if part != "postgres" or part in self.stores)

    @property
    def needs_postgres(self) -> bool:
        """Whether a PostgreSQL server is started."""
        on_every_store = {"http", "flat", "faults"}
        return "postgres" in self.stores and (
            self.stores[0] == "postgres" or bool({"postgres", *on_every_store} & {*self.parts})
        )


NOT_INSTALLED: Final = "not installed"
FAILED: Final = "did not run"
RIVALS: Final[tuple[ModuleType, ...]] = (procrastinate_jobs, pgqueuer_jobs)
USUAL_PER_S: Final = {procrastinate_jobs.NAME: 150, pgqueuer_jobs.NAME: 5_000}
"""Jobs per second, roughly: so that burn-downs of all of them take about as long."""

_WITHIN_S: Final = 120.0


def is_installed(rival: ModuleType) -> bool:
    """Return whether all that a rival needs can be imported."""
    return all(importlib.util.find_spec(package) is not None for package in rival.PACKAGES)


async def call(rival: ModuleType, *arguments: str) -> str | None:
    """Run an action of a rival in a process of its own; return what it printed, or None when it failed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", rival.__name__, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_WITHIN_S):
            said, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode() if process.returncode == 0 else None


@dataclass(frozen=True, slots=True)
class Site:
    """Where parts run."""

    parameters: JobQueueParameters  # of the scenario
    seed: int  # of everything random
    folder: Path  # on the disk that is measured
    postgres: PrivatePostgres | None  # a private server with fsync and synchronous_commit on, or None

    @contextmanager
    def database(self, store: str) -> Iterator[str]:
        """Give the address of an empty database."""
        if store == "sqlite":
            yield f"sqlite:///{self.folder / f'queue-{uuid4().hex[:8]}.db'}"
            return
        assert self.postgres is not None, "the scenario starts it where it is needed"
        with self.postgres.fresh_database() as url:
            yield url
