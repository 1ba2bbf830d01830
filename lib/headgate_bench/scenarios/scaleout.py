"""P13: one campaign on more machines: several processes on one PostgreSQL journal, environments on Ray nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headgate_bench.artifact import at_most
from headgate_bench.definition import Bench, Outcome, Scenario, spread_of
from headgate_bench.postgres import PrivatePostgres
from headgate_bench.ray_hosts import hosts_measured
from headgate_bench.shared_journal import Race, Raced, raced


@dataclass(frozen=True, slots=True)
class ScaleoutParameters:
    """Parameters of the scenario."""

    parts: tuple[str, ...] = ("journal", "hosts")  # parts to measure
    processes: tuple[int, ...] = (1, 2, 4)  # numbers of processes on one journal
    models: int = 400
    rounds: int = 10  # due times of each model
    batch: int = 100  # samples opened, and accepted, at once
    iterations: int = 3  # repetitions of each race
    nodes: tuple[int, ...] = (2,)  # numbers of nodes of a Ray cluster on which a run plays its environments
    beside: int = 1  # nodes of one more such run, next to a batch pipeline of Ray Data
    seconds: float = 5.0  # how long turns are counted for each number of nodes
    bar_us: float = 300.0  # maximum wall time per sample, opened, accepted and taken for the store
    bar_turn_us: float = 250.0  # maximum CPU time of the run per turn of an environment on another node
    bar_used_share: float = 0.95  # minimum share of the nodes' time spent in turns


def measure(parameters: ScaleoutParameters, bench: Bench) -> Outcome:
    """Return the results of races for the due times of one campaign, and of runs on the nodes of a cluster."""
    outcome = _races(parameters, bench) if "journal" in parameters.parts else Outcome()
    if "hosts" in parameters.parts:
        outcome.add(hosts_measured(parameters, bench))
    return outcome


def _races(parameters: ScaleoutParameters, bench: Bench) -> Outcome:
    race = Race(parameters.models, parameters.rounds, parameters.batch)
    found: dict[int, list[Raced]] = {count: [] for count in parameters.processes}
    bench.progress(0.0, "starting PostgreSQL")
    done, total = 0, parameters.iterations * len(parameters.processes)
    with PrivatePostgres() as postgres:
        for _ in range(parameters.iterations):
            for count, races in found.items():
                with postgres.fresh_database() as url:
                    races.append(raced(url, race, count))
                done += 1
                bench.progress(done / total, f"{count} processes on one journal")
    all_races = [one for races in found.values() for one in races]
    spreads = {
        f"journal_us_{count}": spread_of([one.wall_s / race.dues * 1e6 for one in races])
        for count, races in found.items()
    }
    slowest = max(spread.median for spread in spreads.values())
    waits = {
        f"waited for a processor, {count} at once": spread_of([one.waited_s / race.dues * 1e6 for one in races]).median
        for count, races in found.items()
    }
    for count, races in found.items():
        spreads[f"journal_cpu_us_{count}"] = spread_of([one.cpu_s / race.dues * 1e6 for one in races])
    cpu = max(spreads[f"journal_cpu_us_{count}"].median for count in found)
    return Outcome(
        bars=[
            at_most(
                "P13.journal", "wall time per sample, the slowest race", slowest, parameters.bar_us, "µs/sample", waits
            ),
            at_most("P13.journal_cpu", "CPU of processes and server per sample", cpu, parameters.bar_us, "µs/sample"),
            at_most(
                "P13.lost", "due times without a stored sample", sum(_lost(one, race) for one in all_races), 0, "dues"
            ),
            at_most("P13.doubled", "samples twice", sum(_doubled(one) for one in all_races), 0, "samples"),
            at_most("P13.left", "tasks and samples left behind", sum(one.left for one in all_races), 0, "rows"),
        ],
        samples=[{"processes": one.processes, "wall_s": one.wall_s, "samples": len(one.accepted)} for one in all_races],
        ratios=spreads,
        notes=[
            "CPU of processes and server per sample, by processes: "
            + ", ".join(f"{count}: {spreads[f'journal_cpu_us_{count}'].median:.0f} us" for count in found),
            f"Each of {race.dues} due times is wanted by every process; {race.batch} are opened at once.",
        ],
    )


def _lost(found: Raced, race: Race) -> int:
    """Return how many due times lack a sample that is accepted and stored, counting each model's numbers from 0."""
    stored, accepted = set(found.stored), set(found.accepted)
    models = {model for model, _ in accepted}
    wanted = {(model, number) for model in models for number in range(race.rounds)}
    return race.dues - len(wanted & stored & accepted)


def _doubled(found: Raced) -> int:
    return sum(count - 1 for told in (found.accepted, found.stored) for count in Counter(told).values())


SCENARIO = Scenario(
    name="scaleout",
    quick=ScaleoutParameters(),
    full=ScaleoutParameters(rounds=50, iterations=5, nodes=(1, 2, 4, 8), beside=2, seconds=30.0),
    measure=measure,
)
