"""What each part of the scenario is given, and what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from headgate.simulation import PrivatePostgres
from headgate_bench.bars import Bar
from headgate_bench.jobqueue.parameters import JobQueueParameters
from headgate_bench.scenario import Chart, Spread


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
