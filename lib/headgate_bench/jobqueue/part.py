"""The inputs of each part of the scenario."""

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

    parts: tuple[str, ...] = PARTS  # parts to measure
    # Databases of the parts that run on either; without `postgres` no PostgreSQL programs are needed.
    stores: tuple[str, ...] = STORES
    iterations: int = 1  # burn-downs of each contender, in turns
    jobs: int = 20_000  # jobs of a burn-down in batches
    batch: int = 500  # jobs per claim and per completion
    batch_workers: int = 1  # callers that claim and complete batches in parallel
    rival_jobs: int = 2  # size of each rival's burn-down, in seconds at its usual rate
    http_s: float = 1.5  # seconds of claims and completions one by one
    http_clients: int = 32  # connections that do so
    pickup_jobs: int = 500  # jobs submitted one by one
    pickup_workers: int = 32  # long-polling connections
    handovers: int = 100  # hand-overs of a freed policy server
    small: int = 10_000  # jobs in the small queue of `flat`
    large: int = 100_000  # jobs in the large one
    flat_rounds: int = 10  # claims of 100 jobs from each, in turns
    saturation_hours: float = 0.5  # simulated hours in steady state
    saturation_scale: float = 100.0  # factor by which loads and episodes over HTTP are shorter than real ones
    saturation_episodes: int = 5  # episodes of each policy server over HTTP, in steady state
    heartbeat_workers: int = 1_000  # workers, each with a connection and a lease
    heartbeat_lease_s: float = 10.0  # lease period, renewed three times per period
    heartbeat_s: float = 4.0  # length of the measurement in seconds
    fault_jobs: int = 200  # jobs of each contender's burn-down under kills
    fault_job_s: float = 0.02  # seconds per job
    worker_kills: int = 2  # kills of each contender's workers
    server_kills: int = 1  # kills of our server
    bar_batch: float = 10_000.0  # minimum jobs claimed and completed per second in batches
    bar_http: float = 500.0  # minimum jobs per second one by one
    bar_pickup_ms: float = 20.0  # maximum 95th percentile of a pick-up
    bar_handover_ms: float = 20.0  # maximum 95th percentile of a hand-over
    bar_flat: float = 1.2  # maximum CPU time of a claim in the large queue over that in the small one
    bar_busy: float = 0.98  # minimum share of the time in which policy servers are busy
    bar_lost: int = 0  # maximum number of leases and jobs lost, and of jobs counted twice

    def check(self) -> None:
        """Refuse unknown parts and stores.

        Raises:
            InvalidInputError: if there is one; the message names the first.
        """
        for what, given, known in (("part", self.parts, PARTS), ("store", self.stores, STORES)):
            for name in given:
                if name not in known:
                    raise InvalidInputError(f"the benchmark has no {what} {name!r}; it has {', '.join(known)}")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The parts that can be measured on the chosen stores."""
        return tuple(part for part in self.parts if part != "postgres" or part in self.stores)

    @property
    def needs_postgres(self) -> bool:
        """Whether a PostgreSQL server is needed."""
        on_every_store = {"http", "flat", "faults"}
        return "postgres" in self.stores and (
            self.stores[0] == "postgres" or bool({"postgres", *on_every_store} & {*self.parts})
        )


NOT_INSTALLED: Final = "not installed"
FAILED: Final = "did not run"
RIVALS: Final[tuple[ModuleType, ...]] = (procrastinate_jobs, pgqueuer_jobs)
USUAL_PER_S: Final = {procrastinate_jobs.NAME: 150, pgqueuer_jobs.NAME: 5_000}
"""Rough jobs per second, so that the burn-downs of all rivals take about the same time."""

_WITHIN_S: Final = 120.0


def is_installed(rival: ModuleType) -> bool:
    """Return whether all packages of a rival can be imported."""
    return all(importlib.util.find_spec(package) is not None for package in rival.PACKAGES)


async def call(rival: ModuleType, *arguments: str) -> str | None:
    """Run an action of a rival in its own process; return its output, or None if it failed."""
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
    """The site where the parts run."""

    parameters: JobQueueParameters  # parameters of the scenario
    seed: int  # random seed
    folder: Path  # folder on the measured disk
    postgres: PrivatePostgres | None  # a private server with fsync and synchronous_commit on, or None

    @contextmanager
    def database(self, store: str) -> Iterator[str]:
        """Yield the address of an empty database."""
        if store == "sqlite":
            yield f"sqlite:///{self.folder / f'queue-{uuid4().hex[:8]}.db'}"
            return
        assert self.postgres is not None, "the scenario starts it if it is needed"
        with self.postgres.fresh_database() as url:
            yield url
