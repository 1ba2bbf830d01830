"""Replay job traces under different placement rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from headgate.cli import AsJson, print_json, print_table, say, write_page
from headgate.placement import GroupShape, PreemptionRules, amounts, rules_from
from headgate_replay.cli import replaying
from headgate_replay.files import yaml_settings
from headgate_replay.placement import (
    HEAVY,
    MIXES,
    POLICIES,
    Comparison,
    InvalidTraceError,
    Measures,
    Trace,
    Waiting,
    cluster_of,
    compared,
    generated,
    heavy_tailed,
    read_json_lines,
    read_openb,
    timeline_svg,
    without_durations,
)

_LABEL_RULES: Final = {"role": {"train": ("reward", "rollout"), "reward": ("rollout",), "urgent": ("batch",)}}
_SIZE_KEYS: Final = {"gpus", "cpus", "memory_gib"}


_COLUMNS: Final = (
    *("policy", "p50", "p95", "p99", "use", "useful", "lost GPU-h"),
    *("x least", "stops", "victims done", "ended", "took"),
)


def simulate(
    trace: Annotated[
        Path | None,
        Parameter(
            help="A .csv list of pods (openb_pod_list_default.csv of cluster-trace-gpu-v2023 in "
            "https://github.com/alibaba/clusterdata), or a .jsonl file with one job per line."
        ),
    ] = None,
    *,
    mix: Annotated[
        str | None, Parameter(help=f"Replay a generated mix instead of a file: {', '.join((*MIXES, HEAVY))}.")
    ] = None,
    hours: Annotated[float, Parameter(help="For a mix: hours during which jobs arrive.")] = 24.0,
    load: Annotated[float, Parameter(help="For a mix: demand as a share of the cluster's GPUs.")] = 0.9,
    seed: Annotated[int, Parameter(help="Random seed of a mix.")] = 0,
    job_count: Annotated[
        int, Parameter(name="--jobs", help=f"For the mix {HEAVY}: number of jobs; the load determines the hours.")
    ] = 400,
    untold: Annotated[bool, Parameter(help="Hide from all policies how long jobs take.")] = False,
    nodes: Annotated[int, Parameter(help="Number of nodes of the simulated cluster.")] = 4,
    gpus: Annotated[int, Parameter(help="GPUs of each node.")] = 8,
    cpus: Annotated[float, Parameter(help="CPUs of each node.")] = 128,
    memory_gib: Annotated[int, Parameter(help="Memory of each node in GiB.")] = 1024,
    reserved: Annotated[
        tuple[str, ...],
        Parameter(help="Group for high priorities, e.g. members=2,gpus=2,cpus=8; may be repeated."),
    ] = (),
    longest_hours: Annotated[
        float | None, Parameter(help="For a list of pods: leave out pods that ran longer.")
    ] = None,
    checkpoint_every_s: Annotated[
        float, Parameter(help="For a list of pods: seconds between checkpoints; 0 for none.")
    ] = 600.0,
    restart_s: Annotated[float, Parameter(help="For a list of pods: seconds that a restart costs.")] = 30.0,
    rules: Annotated[Path | None, Parameter(help="YAML file of preemption rules.")] = None,
    policy: Annotated[
        tuple[str, ...], Parameter(help=f"One of {', '.join(POLICIES)}; may be repeated. Default: all.")
    ] = (),
    output: Annotated[
        Path | None, Parameter(name=("--output", "-o"), help="File for an SVG that shows which jobs held which GPUs.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Replay jobs through the placement ledger in virtual time and compare it with Ray, FIFO, backfill and other rules.

    Neither Ray nor any other process is started. The same input gives the same figures.
    """
    cluster = cluster_of(nodes, gpus, cpus, memory_gib, reserved=tuple(_shape(written) for written in reserved))
    given = {"longest-hours": longest_hours, "checkpoint-every-s": checkpoint_every_s, "restart-s": restart_s}
    for name, number in given.items():
        if number is not None and not 0 <= number < float("inf"):
            raise InvalidTraceError(f"--{name} must be a number >= 0 (got {number:g})")
    if (trace is None) == (mix is None):
        raise InvalidTraceError("give either a file of jobs or --mix", next_step="For example: --mix rlhf.")
    if trace is not None:
        played = _read(trace, longest_hours, checkpoint_every_s, restart_s)
    elif mix == HEAVY:
        played = heavy_tailed(cluster, jobs=job_count, load=load, seed=seed)
    else:
        played = generated(mix or "", cluster, hours=hours, load=load, seed=seed)
    if untold:
        played = without_durations(played)
    in_force = PreemptionRules(label_rules=_LABEL_RULES) if rules is None else _rules(rules)
    policies = policy or tuple(POLICIES)
    with replaying(played.name, len(policies)) as tell:
        made = compared(played, cluster, in_force, policies, tell=tell)
    if output is not None:
        write_page(output, timeline_svg(made))
    if as_json:
        print_json(made.document() | {"figure": None if output is None else str(output.resolve())})
    else:
        _print(made, output)
    return 0


def _rules(path: Path) -> PreemptionRules:
    """Read rules from a rules file or from a file of pools."""
    written = yaml_settings(path, "rules", "preemption")
    return rules_from(written.get("rules") or {} if written.keys() <= {"pools", "rules"} else written)


def _read(path: Path, longest_hours: float | None, checkpoint_every_s: float, restart_s: float) -> Trace:
    if path.suffix.lower() == ".csv":
        return read_openb(
            path,
            longest_s=None if longest_hours is None else longest_hours * 3600,
            checkpoint_every_s=checkpoint_every_s or None,
            restart_s=restart_s,
        )
    if path.suffix.lower() in {".jsonl", ".ndjson"}:
        return read_json_lines(path)
    raise InvalidTraceError(
        f"{path} is neither a .csv list of pods nor a .jsonl file of jobs",
        next_step="Give the file the ending that matches its content.",
    )


def _shape(written: str) -> GroupShape:
    """Return the reserved group that `members=2,gpus=2,cpus=8` describes."""
    try:
        parts = {key: float(value) for key, _, value in (part.strip().partition("=") for part in written.split(","))}
    except ValueError:
        parts = {}
    members = parts.pop("members", 1)
    member = amounts(parts.get("cpus", 0), parts.get("gpus", 0), int(parts.get("memory_gib", 0) * 2**30))
    if not member or not parts.keys() <= _SIZE_KEYS or not 1 <= members <= 256 or members % 1:
        raise InvalidTraceError(
            "--reserved must have the form members=2,gpus=2,cpus=8,memory_gib=16, with at least one amount "
            f"(got {written!r})"
        )
    return GroupShape((member,) * int(members), "PACK")


def _print(made: Comparison, figure: Path | None) -> None:
    say(f"{made.trace.name}: {len(made.trace.jobs)} jobs on {made.cluster}")
    for note in made.trace.notes:
        say(f"  {note}")
    print_table(
        "Waiting of high-priority work, use of the cluster, and the cost of preemptions",
        _COLUMNS,
        [_row(each) for each in made.measures],
        right=tuple(range(1, len(_COLUMNS))),
        spare=("took", "use", "ended", "stops", "p50"),
    )
    bands = sorted({band for each in made.measures for band in each.bands}, reverse=True)
    print_table(
        "Waiting of all work and of the widest, bounded slowdown, CPU per event, and jobs never done",
        ("policy", "mean", "p95", "widest p95", "slowdown p95", "CPU", "never done"),
        [
            (
                each.policy,
                *(_span(value) for value in (each.all.mean_s, each.all.p95_s, each.widest.p95_s)),
                "–" if each.slowdown_p95 is None else f"{each.slowdown_p95:.1f}",
                f"{each.cpu_ms:.2f} ms",
                str(each.never_done),
            )
            for each in made.measures
        ],
        right=(1, 2, 3, 4, 5, 6),
    )
    print_table(
        "Waiting by band: p50 / p95",
        ("policy", *(f"band {band}" for band in bands)),
        [(each.policy, *(_pair(each.bands[band]) for band in bands)) for each in made.measures],
        right=tuple(range(1, len(bands) + 1)),
    )
    least = ", ".join(f"{name} {_span(value)}" for name, value in made.least_waiting_s.items())
    say(f"No policy can get high-priority waiting below: {least}.")
    say(
        "Waiting is all time from arrival to end beyond the job's own work. 'x least': the work lost to all "
        "preemptions, divided by the least that the same rules could have lost at the same moments. 'clairvoyant' "
        "knows every duration and stops work at no cost on one large node: it is a yardstick and not a policy."
    )
    for outcome in made.outcomes:
        say(f"{outcome.policy}: {outcome.says}")
    if figure is not None:
        say(f"figure: {figure.resolve()}")


def _row(each: Measures) -> tuple[str, ...]:
    least = "∞" if each.lost_over_least is None else f"{each.lost_over_least:.2f}"
    return (
        each.policy,
        *(_span(value) for value in (each.high.p50_s, each.high.p95_s, each.high.p99_s)),
        f"{each.utilisation:.1%}",
        f"{each.useful:.1%}",
        f"{each.lost_gpu_s / 3600:,.2f}",
        "–" if not each.decisions else least if each.exact_share == 1 else f"<= {least}",
        str(each.preemptions),
        f"{each.victims_done} of {each.victims}" if each.victims else "–",
        _span(each.makespan_s),
        f"{each.took_s:.2f} s",
    )


def _pair(waiting: Waiting) -> str:
    return "–" if waiting.p50_s is None else f"{_span(waiting.p50_s)} / {_span(waiting.p95_s)}"


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.2f} s"
