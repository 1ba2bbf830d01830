"""Running a scenario: from its parameters to its artifact."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import importlib
import math
import pkgutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headgate.core.errors import InvalidInputError, did_you_mean
from headgate_bench import scenarios
from headgate_bench.artifact import FORMAT, bar_document, load, machine, versions, write_artifact, write_files
from headgate_bench.definition import Bench, Outcome, Progress, Scenario, Size, changed


def scenario_names() -> tuple[str, ...]:
    """Return the names of all scenarios, sorted, without importing them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__)))


def scenario_summary(name: str) -> str:
    """Return one line about what a scenario measures, without importing it: some need Ray, some Prefect."""
    source = Path(scenarios.__path__[0], f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").removesuffix(".")


def scenario(name: str) -> Scenario[Any]:
    """Return a scenario.

    Raises:
        InvalidInputError: if there is no scenario of that name.
    """
    names = scenario_names()
    if name not in names:
        hint = did_you_mean(name, names)
        raise InvalidInputError(
            f"there is no benchmark {name!r}{hint}", next_step="`headgate bench list` lists them all."
        )
    found: Scenario[Any] = importlib.import_module(f"{scenarios.__name__}.{name}").SCENARIO
    return found


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run of a scenario: its artifact, and the artifact's path."""

    artifact: Mapping[str, Any]
    path: Path

    @property
    def is_met(self) -> bool:
        """Whether every bar is met."""
        return all(bar["met"] for bar in self.artifact["bars"])

    def document(self) -> dict[str, Any]:
        """Return the document that `headgate bench --json` prints."""
        return {
            "scenario": self.artifact["scenario"],
            "bars": self.artifact["bars"],
            "artifact": str(self.path),
            "files": [str(self.path.parent / name) for name in self.artifact["files"]],
        }


def run_scenario(
    scenario: Scenario[Any],
    size: Size,
    *,
    output: Path,
    seed: int = 0,
    changes: Sequence[str] = (),
    progress: Progress = lambda _share, _what: None,
    traces: Sequence[Path] = (),
    service_times: Path | None = None,
) -> Finished:
    """Run a scenario and return its result; the artifact is written into `output`.

    Working files are below `output`, on the disk that is measured, and are deleted. `changes`, each `name=value`, apply
    to the size's parameters; `traces` and `service_times` are for scenarios that replay traces.

    Raises:
        InvalidInputError: if a change is not valid, the folder cannot be used, or the scenario reads no traces.
    """
    if (traces or service_times) and not scenario.reads_traces:
        raise InvalidInputError(
            f"the benchmark {scenario.name!r} reads no traces (got {(*traces, service_times)[0]})",
            next_step="Leave --trace and --service-times out, or name one that replays traces: elastic, placement.",
        )
    parameters = changed(scenario.parameters(size), changes)
    try:
        output.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="work-", dir=output, ignore_cleanup_errors=True)
    except OSError as error:
        raise InvalidInputError(
            f"folder {output} cannot be written to: {error.strerror}", next_step="Choose another one with --output."
        ) from None
    load_before, started, cpu_before = load(), time.time(), time.process_time()
    with folder as place:
        measured = scenario.measure(parameters, Bench(seed, Path(place), progress, traces, service_times))
        outcome = measured if isinstance(measured, Outcome) else asyncio.run(measured)
    finished = time.time()
    run_id = f"{datetime.fromtimestamp(finished, UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
    artifact = {
        "format": FORMAT,
        "scenario": scenario.name,
        "id": run_id,
        "what": scenario_summary(scenario.name),
        "size": size,
        "changes": list(changes),
        "seed": seed,
        "started_at": started,
        "finished_at": finished,
        "cpu_s": time.process_time() - cpu_before,
        "versions": versions(),
        "machine": machine() | {"load_before": load_before, "load_after": load()},
        "parameters": asdict(parameters),
        "samples": [_finite(sample) for sample in outcome.samples],
        "ratios": {name: asdict(spread) for name, spread in outcome.ratios.items()},
        "bars": [bar_document(bar) for bar in outcome.bars],
        "charts": [asdict(chart) for chart in outcome.charts],
        "notes": list(outcome.notes),
        "inputs": [_input(path) for path in (*traces, *([service_times] if service_times else []))],
        "files": write_files(output, f"{scenario.name}-{run_id}", outcome.files),
    }
    return Finished(artifact, write_artifact(output, artifact))


def _input(path: Path) -> dict[str, Any]:
    """Return name, size and hash of an input file, which identify it."""
    content = path.read_bytes()
    return {"name": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _finite(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a measurement with None for values that JSON cannot express (NaN and infinities)."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in sample.items()
    }
