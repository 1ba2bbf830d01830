"""What each part of the scenario is given, and what it finds."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import uuid4

from headgate.simulation import PrivatePostgres
from headgate_bench.bars import Bar
from headgate_bench.jobqueue.parameters import JobQueueParameters
from headgate_bench.rivals import pgqueuer_jobs, procrastinate_jobs
from headgate_bench.scenario import Chart, Spread

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


@dataclass(slots=True)
class Part:
    """Figures of one part; see `Outcome`."""

    bars: list[Bar] = field(default_factory=list)
    samples: list[Mapping[str, Any]] = field(default_factory=list)
    ratios: dict[str, Spread] = field(default_factory=dict)
    charts: list[Chart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, other: Part) -> None:
        """Take in what another part found."""
        self.bars += other.bars
        self.samples += other.samples
        self.ratios |= other.ratios
        self.charts += other.charts
        self.notes += other.notes


@dataclass(frozen=True, slots=True)
class Site:
    """Where parts run.

    Attributes:
        parameters: of the scenario.
        seed: of everything random.
        folder: on the disk that is measured.
        postgres: a private server with fsync and synchronous_commit on, or None.
    """

    parameters: JobQueueParameters
    seed: int
    folder: Path
    postgres: PrivatePostgres | None

    @contextmanager
    def database(self, store: str) -> Iterator[str]:
        """Give the address of an empty database."""
        if store == "sqlite":
            yield f"sqlite:///{self.folder / f'queue-{uuid4().hex[:8]}.db'}"
            return
        assert self.postgres is not None, "the scenario starts it where it is needed"
        with self.postgres.fresh_database() as url:
            yield url


def percentile(values: list[float], share: float) -> float:
    """Return the value below which a share of the values lies; values must not be empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
