"""`headgate query|summary|report|export|import|compact|verify`: what is stored, asked and looked after."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headgate.campaign import sample_store
from headgate.cli.choices import Choices
from headgate.cli.output import AsJson, console, print_json, print_table
from headgate.core.errors import InvalidInputError
from headgate.reports import build_report
from headgate.storage import CompactionPolicy, Problem, SampleStore, export_samples, import_samples

Format = Literal["jsonl", "seed-results", "seed-summary"]


def query(sql: str, choices: Choices | None = None, *, as_json: AsJson = False) -> int:
    """Ask the stored samples a question in SQL (DuckDB), over the view `samples`.

    Example: headgate query "select model, avg(score) from samples group by model"
    """
    found = asyncio.run(_store(choices).query(sql))
    _warn_of(found.problems)
    if as_json:
        print_json([dict(zip(found.columns, row, strict=True)) for row in found.rows])
    else:
        print_table(f"{len(found.rows)} rows", found.columns, found.rows)
    return 0


def summary(
    choices: Choices | None = None,
    *,
    rebuild: Annotated[bool, Parameter(negative="", help="Read every part again instead of what is new.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show counts, means and 95 % intervals per model and environment, and write them to the store's summary."""
    found = asyncio.run(_store(choices).summary(time.time(), rebuild=rebuild))
    _warn_of(found.problems)
    rows = [
        (p.model, p.environment, p.count, p.count_24h, p.mean_score, p.interval.low, p.interval.high, p.unscored)
        for p in found.pairs
    ]
    columns = ("model", "environment", "samples", "24 h", "mean", "low", "high", "unscored")
    if as_json:
        print_json([dict(zip((c.replace(" ", "_") for c in columns), row, strict=True)) for row in rows])
    else:
        print_table(f"{len(rows)} models × environments", columns, rows, right=(2, 3, 4, 5, 6, 7))
    return 0


def report(
    choices: Choices | None = None,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="File to write.")] = Path("report.html"),
    hours: Annotated[float | None, Parameter(help="Only samples that ended within the last hours.")] = None,
    title: Annotated[str, Parameter(help="Title of the report.")] = "Headgate report",
    as_json: AsJson = False,
) -> int:
    """Write a self-contained HTML report of the stored samples."""
    since = time.time() - hours * 3_600 if hours is not None else None
    found = asyncio.run(_store(choices).scan(since=since))
    _warn_of(found.problems)
    made = build_report(found.frame, title=title, with_png=False)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(made.html, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"report {output} cannot be written: {error.strerror}") from None
    if as_json:
        print_json({"path": str(output.resolve()), "samples": found.frame.height})
    else:
        console().print(f"{found.frame.height} samples: {output.resolve()}", highlight=False, markup=False)
    return 0


def export(
    output: Path,
    choices: Choices | None = None,
    *,
    form: Annotated[Format, Parameter(name="--format", help="Format of the file.")] = "jsonl",
    as_json: AsJson = False,
) -> int:
    """Write stored samples as JSON lines, as result shards, or as a summary in the format of seed 000."""
    written = asyncio.run(export_samples(_store(choices), output, form, now=time.time()))
    if as_json:
        print_json({"path": str(output), "rows": written})
    else:
        console().print(f"{written} rows: {output}", highlight=False, markup=False)
    return 0


def import_(
    source: Path,
    choices: Choices | None = None,
    *,
    form: Annotated[Format, Parameter(name="--format", help="Format of the file.")] = "jsonl",
    as_json: AsJson = False,
) -> int:
    """Store samples from a file that `headgate export` or another tool wrote; what is there already stays single."""
    settings = (choices or Choices()).load().settings
    imported = asyncio.run(import_samples(sample_store(settings), source, form, campaign=settings.campaign))
    if as_json:
        print_json({"path": str(source), "rows": imported})
    else:
        console().print(f"{imported} samples from {source}", highlight=False, markup=False)
    return 0


def compact(
    choices: Choices | None = None,
    *,
    target_rows: Annotated[int | None, Parameter(help="Rows of a merged part at most.")] = None,
    as_json: AsJson = False,
) -> int:
    """Merge small parts of the store into large ones; readers see every sample once at any moment."""
    policy = CompactionPolicy() if target_rows is None else CompactionPolicy(target_rows=target_rows)
    done = asyncio.run(_store(choices).compact(time.time(), policy))
    document = {"merged_parts": done.parts_before, "into_parts": done.parts_after, "rows": done.rows}
    if as_json:
        print_json(document)
    else:
        console().print(f"{done.parts_before} parts became {done.parts_after}, {done.rows} rows", highlight=False)
    return 0


def verify(choices: Choices | None = None, *, as_json: AsJson = False) -> int:
    """Read every stored object and compare it with its checksum. Exit status 4 when one does not match."""
    found = asyncio.run(_store(choices).verify())
    if as_json:
        print_json({
            "manifests": found.manifests, "parts": found.parts, "rows": found.rows, "bytes": found.size_bytes,
            "problems": [{"path": p.path, "reason": p.reason} for p in found.problems],
        })  # fmt: skip
    else:
        _warn_of(found.problems)
        console().print(f"{found.manifests} manifests, {found.parts} parts, {found.rows} rows read", highlight=False)
    return 4 if found.problems else 0


def _store(choices: Choices | None) -> SampleStore:
    return sample_store((choices or Choices()).load().settings)


def _warn_of(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        console(stderr=True).print(f"left out {problem.path}: {problem.reason}", highlight=False, markup=False)
