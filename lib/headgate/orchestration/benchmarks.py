"""Benchmarks as a flow run: each scenario in its own process, its bars and figures as artifacts."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from prefect.states import Failed

from blocks import PublishedReport, ReportStore
from headgate.core import errors
from headgate.core.tasks import first_ended
from headgate.orchestration.artifacts import Outage, ProgressArtifact, markdown_table, publish, publish_link
from headgate.orchestration.deployments import output_of
from headgate.orchestration.inputs import report_store_for
from headgate.orchestration.pages import figures_markdown, places_of, way_to_page, write_report
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import ended, heeding, run_logger
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.processes import child_process

_GRACE_S: Final = 5.0
"""How long a scenario may take to exit; far below the 30 s after which a worker kills a cancelled run."""

_MET: Final = 0
_MISSED: Final = 4
_PAGE: Final = "report.html"
_WORKPLACE: Final = Path(".headgate/bench")


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    """The results of the scenarios of a run.

    Attributes:
        artifacts: documents of the scenarios that finished, in order.
        failed: scenarios that gave no figures, by name, with the end of their output.
        left: scenarios that did not run because the run was stopped.
    """

    artifacts: Sequence[Mapping[str, Any]]
    failed: Mapping[str, str] = field(default_factory=dict)
    left: Sequence[str] = ()

    @property
    def bars(self) -> list[Mapping[str, Any]]:
        """Every bar of every scenario."""
        return [bar for artifact in self.artifacts for bar in artifact["bars"]]

    @property
    def missed(self) -> list[str]:
        """The ids of the missed bars."""
        return [bar["id"] for bar in self.bars if not bar["met"]]

    def sentence(self) -> str:
        """Return a one-line summary of the run."""
        met = len(self.bars) - len(self.missed)
        parts = [f"{met} of {len(self.bars)} bars met in {len(self.artifacts)} scenarios"]
        for what, names in (("missed", self.missed), ("failed", list(self.failed)), ("not run", self.left)):
            if names:
                parts.append(f"{what}: {', '.join(names)}")
        return "; ".join(parts)

    def data(self) -> dict[str, Any]:
        """Return the data that the flow run returns."""
        return {
            "scenarios": [artifact["scenario"] for artifact in self.artifacts],
            "bars": len(self.bars),
            "missed": self.missed,
            "failed": list(self.failed),
            "left": list(self.left),
        }

    def rows(self) -> list[dict[str, str]]:
        """Return the table of bars, missed ones first."""
        rows = [(bar["met"], artifact["scenario"], bar) for artifact in self.artifacts for bar in artifact["bars"]]
        return [{"scenario": name, **_row(bar)} for _, name, bar in sorted(rows, key=lambda row: row[0])]

    def markdown(self, page: str) -> str:
        """Return the summary; `page` tells in Markdown where the page with all figures is."""
        parts = [f"# Benchmarks\n\n{self.sentence()}.", page]
        for artifact in self.artifacts:
            notes = [f"- {note}" for note in artifact["notes"]]
            rows = [_row(bar) for bar in artifact["bars"]]
            parts.append(f"## {artifact['scenario']}\n\n{artifact['what']}")
            parts.append(markdown_table(rows))
            if notes:
                parts.append("\n".join(notes))
        for name, said in self.failed.items():
            parts.append(f"## {name}\n\nIt gave no figures:\n\n```text\n{said.replace('`', ' ')}\n```")
        return "\n\n".join(parts) + "\n"


def _row(bar: Mapping[str, Any]) -> dict[str, str]:
    return {
        "id": bar["id"],
        "met": "met" if bar["met"] else "missed",
        "value": f"{_figure(bar['value'])} {bar['unit']}",
        "bar": f"{'≥' if bar['side'] == 'at_least' else '≤'} {_figure(bar['bar'])}",
        "what": bar["what"],
        "beside": "; ".join(f"{name}: {_figure(value)}" for name, value in bar["beside"].items()),
    }


def _figure(value: object) -> str:
    if not isinstance(value, int | float):
        return "–" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class BenchOrder:
    """What a flow run is asked to measure.

    Its fields are the parameters of the flow `benchmark`.
    """

    scenarios: Sequence[str] = ()
    size: Literal["quick", "full"] = "quick"
    seed: int = 0
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    baseline: str = ""
    reports: str = ""
    fail_on_missed: bool = True


async def run_benchmark(order: BenchOrder) -> Any:
    """Run the scenarios one after the other, publish their results, and return the final state of the run.

    Scenarios keep the processor busy; in their own processes they block neither the flow run's event loop nor its
    heartbeat. A stopped run ends the current scenario and publishes the finished ones.

    Raises:
        HeadgateError: if a scenario or block is unknown (nothing has been measured then), or the report cannot be
            written (the artifacts are published then).
    """
    reports = await report_store_for(order.reports)
    stop = StopRequest()
    with _folder() as folder, stop_on_signals(stop):
        names = await _names(order, folder)
        outcome = await _Scenarios(order, folder, stop).run(names)
        published = await _publish(outcome, folder, reports) if outcome.artifacts else None
        await publish("benchmark-bars", outcome.rows(), outcome.sentence())
        page = way_to_page(_PAGE, published) if published else "No scenario ended, so there is no page."
        await publish("benchmark", outcome.markdown(page), "The benchmarks in words and tables")
        run_logger().info("benchmarks: %s", outcome.sentence())
        if stop.reason is None and (outcome.failed or (outcome.missed and order.fail_on_missed)):
            return Failed(message=outcome.sentence())
        return await ended(stop, outcome.sentence(), outcome.data() | places_of(published))


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield an empty folder inside the worker's, deleted afterwards: scenarios measure the disk that they run on."""
    _WORKPLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_WORKPLACE, prefix="run-") as place:
        yield Path(place).absolute()


async def _names(order: BenchOrder, folder: Path) -> tuple[str, ...]:
    """Return the scenarios to run.

    Raises:
        InvalidInputError: if one of them is unknown, or the baseline file does not exist.
    """
    listed = orjson.loads(await output_of("headgate.cli", ("bench", "list", "--json"), folder, os.environ))
    known = [one["scenario"] for one in listed]
    for name in (*order.scenarios, *order.changes):
        if name not in known:
            raise errors.InvalidInputError(
                f"there is no benchmark {name!r}", next_step=f"There are {', '.join(known)}."
            )
    if _baseline(order.baseline) is None:
        raise errors.InvalidInputError(
            f"baseline {order.baseline} is not a file on this worker", next_step="Give the summary.json of a run."
        )
    return tuple(dict.fromkeys(order.scenarios)) or tuple(known)


def _baseline(given: str) -> str | None:
    """Return the baseline as an absolute path that any scenario can use; None if there is no such file."""
    if given in {"", "none"}:
        return given
    path = Path(given).absolute()
    return str(path) if path.is_file() else None


class _Scenarios:
    """The scenarios of one run, one after the other. Owned by the run."""

    def __init__(self, order: BenchOrder, folder: Path, stop: StopRequest) -> None:
        self._order = order
        self._folder = folder
        self._stop = stop
        self._progress = ProgressArtifact("benchmark-progress", Outage())

    async def run(self, names: Sequence[str]) -> BenchOutcome:
        artifacts: list[dict[str, Any]] = []
        failed: dict[str, str] = {}
        done = 0
        for number, name in enumerate(names):
            await self._progress.show(number / len(names), f"{name}, {number + 1} of {len(names)}")
            status, said = await in_phase(f"bench {name}", partial(self._one, name))
            if status is None:
                break
            done += 1
            if status in {_MET, _MISSED}:
                (path,) = self._folder.glob(f"{name}-*.json")
                artifacts.append(orjson.loads(path.read_bytes()))
            else:
                run_logger().error("benchmark %s ended with status %d:\n%s", name, status, said)
                failed[name] = said
        outcome = BenchOutcome(artifacts, failed, names[done:])
        await self._progress.show(done / len(names), outcome.sentence())
        return outcome

    async def _one(self, name: str) -> tuple[int | None, str]:
        """Run a scenario; return its exit status, or None if it was stopped, and the end of its output."""
        log = self._folder / f"{name}.log"
        where: Any = {"environ": os.environ, "folder": self._folder, "log": log, "grace_s": _GRACE_S}
        async with (
            child_process(self._command(name), **where) as child,
            heeding(self._stop),
            first_ended(child.ended(), self._stop.event.wait()) as (over, _),
        ):
            return (over.result(), child.last_lines()) if over.done() else (None, "")

    def _command(self, name: str) -> list[str]:
        order = self._order
        changes = list(order.changes.get(name, ()))
        if name == "idle" and order.baseline:
            changes.append(f"baseline={_baseline(order.baseline)}")
        options = [f"--{order.size}", "--seed", str(order.seed), "--output", str(self._folder)]
        options += [option for change in changes for option in ("--set", change)]
        return [sys.executable, "-m", "headgate.cli", "bench", name, *options]


async def _publish(outcome: BenchOutcome, folder: Path, reports: ReportStore) -> PublishedReport:
    reporting = ("bench", "report", "--json", "--output", ".")
    made = orjson.loads(await output_of("headgate.cli", reporting, folder, os.environ))
    files, figures = await asyncio.to_thread(_read, outcome, made, folder)
    published = await write_report(reports, files, "benchmarks")
    if figures:
        await publish("benchmark-figures", figures_markdown(figures), "Figures of the benchmarks")
    if link := published.links.get(_PAGE):
        await publish_link("benchmark-page", link, "Open the report", "All benchmarks and figures on one page.")
    return published


def _read(
    outcome: BenchOutcome, made: Mapping[str, Any], folder: Path
) -> tuple[dict[str, str | bytes], dict[str, str]]:
    """Return the files to publish, by name, and the figures by title."""
    files: dict[str, str | bytes] = {_PAGE: Path(made["path"]).read_bytes()}
    for artifact in outcome.artifacts:
        name = artifact["scenario"]
        files[f"{name}.json"] = orjson.dumps(artifact, option=orjson.OPT_INDENT_2)
        for file in artifact["files"]:
            files[f"{name}-{Path(file).name}"] = (folder / file).read_bytes()
    return files, {figure["title"]: Path(figure["path"]).read_text("utf-8") for figure in made["figures"]}
