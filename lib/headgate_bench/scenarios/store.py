"""P10: rows validated and stored per second; a writer killed at random points loses and duplicates nothing."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Final

from headgate_bench.artifact import at_least, at_most
from headgate_bench.crashes import Promises, Toll, Writer, killed, toll
from headgate_bench.definition import Bench, Outcome, Scenario, spread_of
from headgate_bench.store_speed import StoreFigures, measure_store


@dataclass(frozen=True, slots=True)
class StoreParameters:
    """Parameters of the scenario."""

    rows: int = 50_000  # rows of the frame that is validated and stored at once
    batch_rows: int = 300  # rows of a small batch, as the sink stores them
    environments: int = 8  # environments in each batch, with a Parquet file for each
    iterations: int = 3  # repetitions of every measurement
    kills: int = 20  # kills of the writers
    writers: int = 2  # writers in parallel, each with its own journal and store
    longest_s: float = 0.8  # time within which a writer is killed
    kill_accept_rows: int = 40  # samples per acceptance of the writers
    kill_batch_rows: int = 60  # samples per batch of the writers; small, so that many batches are hit
    bar_rows_per_s: float = 200_000.0  # minimum rows validated per second


def measure(parameters: StoreParameters, bench: Bench) -> Outcome:
    """Return the speed of writes to the store, and the toll of the kills."""
    figures: list[StoreFigures] = []
    measure_store(rows=1_000, batch_rows=100, runs=1, folder=bench.folder)  # the first validation prepares the schema
    for iteration in range(parameters.iterations):
        bench.progress(0.5 * iteration / parameters.iterations, "validating and storing")
        figures.append(
            measure_store(
                rows=parameters.rows,
                batch_rows=parameters.batch_rows,
                environments=parameters.environments,
                runs=1,
                folder=bench.folder,
            )
        )
    tolls = _tolls(parameters, bench)
    speed = spread_of([one.validated_rows_per_s for one in figures])
    ratios = {name: spread_of([getattr(one, name) for one in figures]) for name in _FIGURES}
    kills, accepted, stored = (sum(map(attrgetter(name), tolls)) for name in ("kills", "accepted", "stored"))
    return Outcome(
        bars=[
            at_least("P10.rows", "rows validated", speed.median, parameters.bar_rows_per_s, "rows/s"),
            *(
                at_most(name, f"{what} over {kills} kills", sum(getattr(toll, count) for toll in tolls), 0, unit)
                for name, what, count, unit in _NEVER
            ),
        ],
        samples=[asdict(one) for one in figures] + [asdict(one) for one in tolls],
        ratios=ratios,
        notes=[
            f"Batches of {parameters.batch_rows} rows span {parameters.environments} environments.",
            f"{kills} kills met {accepted} acknowledged samples and {stored} confirmed batches.",
        ],
    )


_FIGURES: Final = (
    *("frame_rows_per_s", "validated_rows_per_s", "stored_rows_per_s"),
    *("batch_ms", "batch_cpu_us_per_sample"),
)
_NEVER: Final = (
    ("P10.lost", "acknowledged samples lost", "lost_samples", "samples"),
    ("P10.lost_batches", "confirmed batches not visible", "lost_batches", "batches"),
    ("P10.doubled", "samples stored twice", "doubled", "samples"),
)
"""Id of the bar, what must not happen, attribute of a toll that counts it, and unit."""


def _tolls(parameters: StoreParameters, bench: Bench) -> list[Toll]:
    rng = random.Random(bench.seed)
    shares = [parameters.kills // parameters.writers] * parameters.writers
    shares[0] += parameters.kills - sum(shares)
    done = [0]

    def one(number: int, kills: int, seed: int) -> Toll:
        writer = Writer(
            bench.folder / f"writer-{number}",
            parameters.environments,
            parameters.kill_accept_rows,
            parameters.kill_batch_rows,
        )
        promises, moments = Promises(), random.Random(seed)
        for _ in range(kills):
            killed(writer, promises, longest_s=parameters.longest_s, rng=moments)
            done[0] += 1
            bench.progress(0.5 + 0.5 * done[0] / parameters.kills, f"{done[0]} of {parameters.kills} kills")
        return toll(writer, promises)

    with ThreadPoolExecutor(parameters.writers) as pool:
        return list(pool.map(one, range(parameters.writers), shares, [rng.getrandbits(32) for _ in shares]))


SCENARIO = Scenario(
    name="store",
    quick=StoreParameters(),
    full=StoreParameters(rows=200_000, iterations=5, kills=100),
    measure=measure,
)
