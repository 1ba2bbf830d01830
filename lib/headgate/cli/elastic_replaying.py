"""`headgate elastic replay`: a load through the elastic pool in virtual time, beside the rules of others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import orjson
from cyclopts import Parameter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli.elastic_asking import say
from headgate.cli.elastic_loads import WORKERS, Loaded, fitting, settings_of, slots_of, workers_of
from headgate.cli.output import AsJson, console, print_json, print_table
from headgate.core.errors import InvalidInputError
from headgate.elastic import ElasticConfig
from headgate.elastic.replay import (
    COLUMNS,
    CONTENDERS,
    RAMP_NAME,
    USUAL,
    Comparison,
    Load,
    Site,
    compared,
    contender,
    sites_for,
    terms_of,
)

_STARTS_S: Final = (1.0, 30.0)
_WHAT: Final = (
    "Cost: worker-seconds awake (starting, draining and going to sleep included) by what the work takes on workers "
    "that are always full. Waiting: from arrival until the request was given to the worker that answered it. "
    "Operations: workers that were started, drained, or turned back. Worth starting: active periods of three starts "
    "or longer."
)


def replay(
    trace: Annotated[
        str,
        Parameter(
            help="`ramp`, or a trace: a .csv with TIMESTAMP, ContextTokens and GeneratedTokens (Azure's), or a .jsonl "
            "with timestamp, input_length and output_length (Mooncake's)."
        ),
    ] = RAMP_NAME,
    *,
    loaded: Loaded | None = None,
    policy: Annotated[
        tuple[str, ...],
        Parameter(negative="", help=f"Of {', '.join(CONTENDERS)}; may be repeated. The usual ones without it."),
    ] = (),
    frontier: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="A policy over all settings of its knob, several replays; may be repeated."),
    ] = (),
    start: Annotated[
        tuple[float, ...], Parameter(negative="", help="Seconds that a worker takes to start; may be repeated.")
    ] = _STARTS_S,
    max_workers: Annotated[int | None, Parameter(help=f"Workers that there are; {WORKERS} by default.")] = None,
    awake: Annotated[
        int | None, Parameter(help="Workers awake at the beginning; 1, for a trace as many as its first minute needs.")
    ] = None,
    settings: Annotated[
        Path | None, Parameter(help="YAML file with the settings of our policies, such as a pool's file.")
    ] = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), help="Folder for a page, figures, JSON.")] = None,
    as_json: AsJson = False,
) -> int:
    """Replay a load through the elastic pool in virtual time, under our policies and the rules of others.

    The pool is the one that serves real requests; engines and time are simulated. The same input gives the same
    figures on every machine.
    """
    wanted = loaded or Loaded()
    config = None if settings is None else settings_of(settings)
    load = wanted.read(trace, slots_of(wanted.slots, config))
    first = 1 if trace == RAMP_NAME and awake is None else awake
    sites = sites_for(load, start, workers=workers_of(max_workers, config), awake=first)
    config = fitting(config, load, sites[0])
    made = _compared(load, sites, config, policy or (*USUAL, "clairvoyant"), frontier)
    files = [] if output is None else _written(made, output)
    if as_json:
        print_json({"comparisons": [each.document() for each in made], "files": [str(file) for file in files]})
        return 0
    _print(made)
    for file in files:
        say(f"file: {file}")
    return 0


def _compared(
    load: Load,
    sites: Sequence[Site],
    config: ElasticConfig | None,
    policies: Sequence[str],
    frontiers: Sequence[str],
) -> list[Comparison]:
    sweeps = sum(len(contender(name).sweep(terms_of(load, sites[0], config))) for name in frontiers)
    with _shown(load.name, len(sites) * (len(policies) + sweeps)) as tell:
        return [_of_site(load, site, config, policies, frontiers, tell) for site in sites]


def _of_site(
    load: Load,
    site: Site,
    config: ElasticConfig | None,
    policies: Sequence[str],
    frontiers: Sequence[str],
    tell: Callable[[str], None],
) -> Comparison:
    return compared(
        load,
        site,
        config=config,
        policies=policies,
        frontiers=frontiers,
        tell=lambda what: tell(f"{site.start_s:g} s to start: {what}"),
    )


@contextmanager
def _shown(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """Give what is told before each replay, and show it while the context lasts where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(name, total=total, what="", completed=-1)  # what is told has not been done
        yield lambda what: progress.update(task, advance=1, what=what)


def _written(made: Sequence[Comparison], folder: Path) -> list[Path]:
    """Write a page, its figures, and all figures as JSON; return the files."""
    # matplotlib takes a second to import: the tables do without it.
    from headgate.reports import replay_figures, replay_page  # noqa: PLC0415

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
    load, site = made[0].load, made[0].site
    say(
        f"{load.name}: {len(load.calls):,} requests in {load.window_s / 60:.0f} min, work for {load.work_s:,.0f} "
        f"worker-seconds; {site.workers} workers of {load.slots} slots, {site.awake} awake at the beginning"
    )
    for note in load.notes:
        say(f"  {note}")
    for each in made:
        title = f"{each.site.start_s:g} s to start"
        print_table(title, COLUMNS, each.rows, right=tuple(range(1, len(COLUMNS))))
        bounds = "; ".join(f"{bound.cost:.2f}x if nobody waits over {bound.wait_s:g} s" for bound in each.bounds)
        say(f"No policy can cost less than {bounds}.")
        for line in each.frontiers:
            points = "; ".join(
                f"{point.value:g}: {point.measures.cost:.2f}x, p99 {point.measures.p99_s:.2f} s" for point in line.best
            )
            say(f"{line.policy} by {line.knob}: {points}")
    say(_WHAT)
    for outcome in made[0].outcomes:
        say(f"{outcome.policy}: {outcome.says}")
