"""Replay a load under Headgate's policies and those of other systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import orjson
from cyclopts import Parameter

from headgate.cli import AsJson, print_json, print_table, say
from headgate.core.errors import InvalidInputError
from headgate.elastic import ElasticConfig, elastic_config
from headgate_replay.cli import replaying
from headgate_replay.elastic import (
    COLUMNS,
    CONTENDERS,
    DEFINITIONS,
    RAMP_NAME,
    SHAPES,
    SLOTS,
    Comparison,
    Hardware,
    ReplayOrder,
    replay_figures,
    replay_page,
)
from headgate_replay.files import yaml_settings

WORKERS: Final = 16
"""Number of a site's workers unless given."""

_HARDWARE: Final = Hardware()


def replay(
    trace: Annotated[
        str,
        Parameter(
            help=f"`ramp`, a randomly drawn hour ({', '.join(SHAPES)}), or a trace: a .csv with TIMESTAMP, "
            "ContextTokens and GeneratedTokens (Azure's), or a .jsonl with timestamp, input_length and output_length "
            "(Mooncake's)."
        ),
    ] = RAMP_NAME,
    *,
    loaded: Loaded | None = None,
    policy: Annotated[
        tuple[str, ...],
        Parameter(help=f"One of {', '.join(CONTENDERS)}; may be repeated. Default: the usual ones."),
    ] = (),
    frontier: Annotated[
        tuple[str, ...],
        Parameter(help="A policy to replay over all settings of its knob; may be repeated."),
    ] = (),
    start: Annotated[tuple[float, ...], Parameter(help="Seconds that a worker takes to start; may be repeated.")] = (
        1.0,
        30.0,
    ),
    max_workers: Annotated[int | None, Parameter(help=f"Number of workers; {WORKERS} by default.")] = None,
    awake: Annotated[
        int | None,
        Parameter(help="Workers awake at the start. Default: 1; for a trace, as many as its first minute needs."),
    ] = None,
    settings: Annotated[
        Path | None, Parameter(help="YAML file with settings for Headgate's policies, such as a pool's file.")
    ] = None,
    output: Annotated[
        Path | None, Parameter(name=("--output", "-o"), help="Folder for the page, figures and JSON.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Replay a load through the elastic pool in virtual time under the policies of Headgate and other systems.

    The pool is the one that serves real requests; engines and time are simulated. The same input gives the same
    figures on every machine.
    """
    wanted = loaded or Loaded()
    config = None if settings is None else settings_of(settings)
    slots, workers = wanted.slots, max_workers
    if slots is None:
        slots = (config and config.requests_per_worker_capacity) or SLOTS
    if workers is None:
        workers = config.max_workers if config else WORKERS
    if config is not None:  # flags take precedence over the file
        sizes = {"max_workers": workers, "requests_per_worker_capacity": slots}
        config = ElasticConfig(**config.model_dump() | sizes)
    given = asdict(wanted) | {"slots": slots, "max_workers": workers, "awake": awake, "config": config}
    order = ReplayOrder(trace=trace, policies=policy, frontiers=frontier, starts_s=start, **given)
    order.check()
    load = order.load()
    sites = order.sites(load)
    with replaying(load.name, order.replays(load, sites)) as tell:
        made = list(order.comparisons(load, sites, tell))
    files = [] if output is None else _written(made, output)
    if as_json:
        print_json({"comparisons": [each.document() for each in made], "files": [str(file) for file in files]})
        return 0
    _print(made)
    for file in files:
        say(f"file: {file}")
    return 0


def _written(made: Sequence[Comparison], folder: Path) -> list[Path]:
    texts = {"elastic-replay.html": replay_page(made)}
    for each in made:
        figures = replay_figures(each, f"elastic-{each.site.start_s:g}s")
        texts |= {name: svg for name, (_caption, svg) in figures.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        document = folder / "elastic-replay.json"
        document.write_bytes(orjson.dumps([each.document() for each in made], option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise InvalidInputError(f"the folder {folder} cannot be written to: {error.strerror}") from None
    return [(folder / name).resolve() for name in (*texts, document.name)]


def _print(made: Sequence[Comparison]) -> None:
    load = made[0].load
    for note in load.notes:
        say(f"  {note}")
    for each in made:
        say(f"{load.name}: {each.says}")
        right, spare = tuple(range(1, len(COLUMNS))), ("wait p50", "peak", "wait p95")
        print_table(each.site.start_text, COLUMNS, each.rows, right=right, spare=spare)
        say(each.limits)
        for line in each.frontiers:
            points = "; ".join(
                f"{point.value:g}: {point.measures.cost:.2f}x, p99 {point.measures.p99_s:.2f} s" for point in line.best
            )
            say(f"{line.policy} by {line.knob}: {points}")
    for term, meaning in DEFINITIONS.items():
        say(f"{term}: {meaning}")
    for outcome in made[0].outcomes:
        say(f"{outcome.policy}: {outcome.says}")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The load to replay and how it is prepared."""

    slots: Annotated[int | None, Parameter(help=f"Requests that a worker runs at once; {SLOTS} by default.")] = None
    seed: Annotated[int, Parameter(help="Random seed of the generated load.")] = 0
    scale: Annotated[
        float, Parameter(help="For the ramp and drawn loads: factor on all times but service times; 1 is an hour.")
    ] = 1.0
    copies: Annotated[int, Parameter(help="For a trace: factor on the number of users.")] = 1
    service_times: Annotated[
        Path | None,
        Parameter(
            help="For a trace: table of the time per token (data/perf_model.csv of "
            "https://github.com/Mutinifni/splitwise-sim)."
        ),
    ] = None
    model: Annotated[str, Parameter(help="Model of the table.")] = _HARDWARE.model
    hardware: Annotated[str, Parameter(help="Hardware of the table.")] = _HARDWARE.hardware
    gpus: Annotated[int, Parameter(help="GPUs per worker in the table.")] = _HARDWARE.tensor_parallel


def settings_of(path: Path) -> ElasticConfig:
    """Return the elastic settings from a pool's file or from a file of settings only.

    Raises:
        InvalidInputError: if the file cannot be read, or a setting breaks a rule.
    """
    written = yaml_settings(path, "settings", "an elastic pool")
    if "pool" in written:
        return elastic_config({"elastic_config": written.get("elastic_config", {})})
    return elastic_config(written)
