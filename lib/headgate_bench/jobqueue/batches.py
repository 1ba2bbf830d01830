"""P5.postgres: claims and completions in batches on PostgreSQL, next to other queues on the same server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType

from headgate_bench.artifact import at_least
from headgate_bench.definition import Chart, Outcome, Spread, spread_of
from headgate_bench.jobqueue.burn_down import burn_down
from headgate_bench.jobqueue.part import FAILED, NOT_INSTALLED, RIVALS, USUAL_PER_S, Site, call, is_installed

_OURS = "headgate"


def batches(site: Site, tell: Callable[[float], None]) -> Outcome:
    """Return the burn-downs of all contenders, which take turns."""
    parameters, part = site.parameters, Outcome()
    per_s: dict[str, list[float]] = {_OURS: []}
    absent = {rival.NAME: NOT_INSTALLED for rival in RIVALS if not is_installed(rival)}
    for iteration in range(parameters.iterations):
        tell(iteration / parameters.iterations)
        with site.database("postgres") as url:
            ours = burn_down(url, parameters.jobs, batch=parameters.batch, workers=parameters.batch_workers)
        per_s[_OURS].append(ours.per_s)
        part.samples.append({"part": "postgres", "contender": _OURS, "per_s": ours.per_s} | asdict(ours))
        for rival in RIVALS:
            if rival.NAME in absent:
                continue
            jobs = parameters.rival_jobs * USUAL_PER_S[rival.NAME]
            seconds = _burned(site, rival, jobs)
            if seconds is None:
                absent[rival.NAME] = FAILED
                continue
            per_s.setdefault(rival.NAME, []).append(jobs / seconds)
            sample = {"per_s": jobs / seconds, "jobs": jobs, "seconds": seconds}
            part.samples.append({"part": "postgres", "contender": rival.NAME} | sample)
    _judge(site, part, {name: spread_of(found) for name, found in per_s.items()}, absent)
    return part


def _burned(site: Site, rival: ModuleType, jobs: int) -> float | None:
    with site.database("postgres") as url:
        said = asyncio.run(call(rival, "burn", url, str(jobs)))
    return None if said is None else float(said)


def _judge(site: Site, part: Outcome, spreads: dict[str, Spread], absent: dict[str, str]) -> None:
    parameters = site.parameters
    beside: dict[str, float | str] = {name: spread.median for name, spread in spreads.items() if name != _OURS}
    part.ratios |= {f"postgres {name} per s": spread for name, spread in spreads.items()}
    part.bars.append(
        at_least(
            "P5.postgres",
            f"jobs claimed and completed durably on PostgreSQL in batches of {parameters.batch}, both as one",
            spreads[_OURS].median,
            parameters.bar_batch,
            "jobs/s",
            beside | absent,
        )
    )
    points = [(name, spread.median) for name, spread in spreads.items()]
    part.charts.append(Chart("Jobs per second on PostgreSQL", "", "jobs/s", "bars", {"jobs": points}))
    part.notes.append(
        f"P5.postgres: no-op jobs, fsync and synchronous_commit on; a claim and a completion of "
        f"{parameters.batch} jobs are one transaction each. procrastinate takes one job per fetch, 20 at a time; "
        "pgqueuer takes batches of 100 and writes the ends of 100 together."
    )
