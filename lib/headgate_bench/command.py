"""Run a benchmark scenario and its rivals."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import orjson
from cyclopts import Parameter
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli import AsJson, console, print_json, print_table
from headgate.core.errors import InvalidInputError
from headgate.telemetry import setup_logging
from headgate_bench import (
    LOGGER,
    Finished,
    Size,
    bench_figures,
    bench_page,
    newest_artifacts,
    run_scenario,
    scenario,
    scenario_names,
    scenario_summary,
)
from headgate_bench import Progress as Tell

_MISSED: Final = 4
_OUTPUT: Final = Path(".headgate/bench")


def bench(
    name: Annotated[str, Parameter(help="A scenario, or `list`, or `report`.")] = "",
    *,
    all_: Annotated[bool, Parameter(name="--all", help="Run every scenario, each in its own process.")] = False,
    quick: Annotated[bool, Parameter(help="Under a minute; the default.")] = False,
    full: Annotated[bool, Parameter(help="Figures for publication; minutes.")] = False,
    seed: Annotated[int, Parameter(help="Random seed.")] = 0,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="Folder of the artifacts.")] = _OUTPUT,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", help="A parameter, as name=value; may be repeated.")] = (),
    trace: Annotated[
        tuple[Path, ...],
        Parameter(
            name="--trace",
            help="A trace of requests (elastic) or a list of pods (placement) to replay; may be repeated.",
        ),
    ] = (),
    service_times: Annotated[
        Path | None, Parameter(help="Table of measured service times for the traces' tokens (elastic).")
    ] = None,
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"), help="Show log lines.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a benchmark scenario and its rivals, and compare the figures with their bars.

    `headgate bench list` names the scenarios; `headgate bench report` turns the newest artifacts into one HTML page and
    files of its figures.

    Exit status 0 when every bar is met, 4 when one is missed.
    """
    if name == "list":
        return _list(as_json=as_json)
    if name == "report":
        return _report(output, as_json=as_json)
    if quick and full:
        raise InvalidInputError("--quick and --full exclude each other", next_step="Leave one of them out.")
    _check(name, every=all_)
    setup_logging(verbosity=1 if verbose else 0)
    logging.getLogger(LOGGER).setLevel(logging.NOTSET if verbose else logging.ERROR)
    size: Size = "full" if full else "quick"
    if all_:
        files = [("--trace", path) for path in trace] + [("--service-times", path) for path in [service_times] if path]
        given = [("--seed", seed), ("--output", output), *(("--set", change) for change in set_), *files]
        options = [f"--{size}", *(str(part) for option in given for part in option), *["--verbose"] * verbose]
        return _each_in_its_process(options, as_json=as_json)
    with _shown(name) as tell:
        finished = run_scenario(
            scenario(name),
            size,
            output=output,
            seed=seed,
            changes=set_,
            progress=tell,
            traces=trace,
            service_times=service_times,
        )
    if as_json:
        print_json(finished.document())
    else:
        _print(finished)
    return 0 if finished.is_met else _MISSED


def _each_in_its_process(options: Sequence[str], *, as_json: bool) -> int:
    """Run every scenario in a fresh process; return the exit status."""
    documents, status = [], 0
    for name in scenario_names():
        command = [sys.executable, "-m", "headgate.cli", "bench", name, *options, *["--json"] * as_json]
        ended = subprocess.run(command, stdout=subprocess.PIPE if as_json else None, check=False)  # noqa: S603 - this program
        if ended.returncode not in {0, _MISSED}:
            return ended.returncode
        status = status or ended.returncode
        if as_json:
            documents.append(orjson.loads(ended.stdout))
    if as_json:
        print_json({"scenarios": documents})
    return status


def _check(name: str, *, every: bool) -> None:
    if every and name:
        raise InvalidInputError(f"--all runs every scenario, {name!r} too", next_step="Leave one of them out.")
    if not every and not name:
        raise InvalidInputError(
            "no scenario is named", next_step=f"Name one of {', '.join(scenario_names())}, or use --all."
        )


def _list(*, as_json: bool) -> int:
    found = {name: scenario_summary(name) for name in scenario_names()}
    if as_json:
        print_json([{"scenario": name, "what": what} for name, what in found.items()])
    else:
        print_table(f"{len(found)} scenarios", ("scenario", "what it measures"), list(found.items()))
    return 0


def _report(output: Path, *, as_json: bool) -> int:
    artifacts = newest_artifacts(output)
    path, folder = output / "report.html", output / "figures"
    figures = bench_figures(artifacts)
    try:
        path.write_text(bench_page(artifacts), encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for name, (_, svg) in figures.items():
            (folder / name).write_text(svg, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"report {path} cannot be written: {error.strerror}") from None
    if as_json:
        drawn = [{"title": title, "path": str((folder / name).resolve())} for name, (title, _) in figures.items()]
        scenarios = [artifact["scenario"] for artifact in artifacts]
        print_json({"path": str(path.resolve()), "scenarios": scenarios, "figures": drawn})
    else:
        console().print(f"{len(artifacts)} scenarios: {path.resolve()}", highlight=False, markup=False)
    return 0


def _print(finished: Finished) -> None:
    bars = finished.artifact["bars"]
    rows = [
        (
            bar["id"],
            bar["what"],
            f"{_figure(bar['value'])} {bar['unit']}",
            f"{'>=' if bar['side'] == 'at_least' else '<='} {_figure(bar['bar'])}",
            "met" if bar["met"] else "MISSED",
        )
        for bar in bars
    ]
    print_table(finished.artifact["scenario"], ("id", "what", "value", "bar", ""), rows, right=(2, 3))
    out = console()
    for bar in bars:
        beside = "; ".join(f"{name}: {_figure(value)}" for name, value in bar["beside"].items())
        if beside:
            out.print(f"beside {bar['id']}: {beside}", highlight=False, markup=False)
    for note in finished.artifact["notes"]:
        out.print(note, highlight=False, markup=False)
    out.print(f"artifact: {finished.path}", highlight=False, markup=False)
    for file in finished.artifact["files"]:
        out.print(f"file: {finished.path.parent / file}", highlight=False, markup=False)


def _figure(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


@contextmanager
def _shown(name: str) -> Iterator[Tell]:
    """Yield a function that takes the progress; if standard error is a terminal, the context shows it."""
    if not sys.stderr.isatty():
        yield lambda _share, _what: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[what]}"),
    )
    with Progress(*columns, console=console(stderr=True), transient=True, refresh_per_second=2) as progress:
        task = progress.add_task(name, total=1.0, what="")
        yield lambda share, what: progress.update(task, completed=share, what=what)
