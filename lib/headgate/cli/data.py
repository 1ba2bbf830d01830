"""`headgate query|summary|report|export|import|compact|verify|repair`: read, move and maintain stored samples."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from headgate import reports, storage
from headgate.cli.live import progress_bar
from headgate.cli.options import JournalChoices, MissingChoice, NamedStoreChoices, ScoreChoices, StoreChoices
from headgate.cli.output import CHECK_FAILED, AsJson, counted, print_json, print_table, say, tell, write_page
from headgate.cli.stored import chosen_samples, existing_store, no_samples, require_stored, warn_of
from headgate.core.errors import InvalidInputError
from headgate.storage import EXPORT_FORMATS, IMPORT_FORMATS, ExportFormat, ImportFormat
from headgate.telemetry import safe_text

_CELL_CHARS: Final = 120


def query(
    sql: Annotated[str, Parameter(help="The query, over the view `samples`.")],
    choices: StoreChoices | None = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Query the stored samples in SQL (DuckDB), over the view `samples`.

    Cells of the table are cut to one line; --json prints them whole.

    Example: headgate query "select model, avg(score) from samples group by model"
    """
    if not sql.strip(" \t\r\n;"):
        raise InvalidInputError(
            "the query is empty",
            next_step='Give it one statement: headgate query "select model, avg(score) from samples group by model"',
        )
    found = asyncio.run(_store(choices).query(sql))
    warn_of(found.problems)
    if as_json:
        print_json([dict(zip(_distinct(found.columns), map(_fitting, row), strict=True)) for row in found.rows])
    elif rows := [[None if value is None else str(value) for value in row] for row in found.rows]:
        cut = [[cell and safe_text(cell, limit_chars=_CELL_CHARS) for cell in row] for row in rows]
        print_table(counted(len(rows), "row"), found.columns, cut)
        if any(cell and len(cell) > _CELL_CHARS for row in rows for cell in row):
            say(f"cells are cut to {_CELL_CHARS} characters; --json has them whole")
    else:
        say("0 rows")
    return 0


def _distinct(columns: Sequence[str]) -> list[str]:
    """Return the names of columns, the second of a name as NAME_2, so that no value of a row is lost in an object."""
    found: list[str] = []
    for name in columns:
        names = chain((name,), (f"{name}_{n}" for n in count(2)))
        found.append(next(one for one in names if one not in found))
    return found


def _fitting(value: object) -> object:
    """Return a value of a query; a whole number of more than 64 bits, such as a sum of seeds, as text."""
    if isinstance(value, list | tuple):
        return [*map(_fitting, value)]
    if isinstance(value, dict):
        return {key: _fitting(one) for key, one in value.items()}
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


def summary(
    choices: StoreChoices | None = None,
    *,
    rebuild: Annotated[bool, Parameter(help="Read every part again, not just what is new.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show counts, means and 95 % intervals per model and environment, and write them to the store's summary."""
    settings = (choices or StoreChoices()).load().settings
    store = existing_store(settings)
    found = asyncio.run(store.summary(time.time(), rebuild=rebuild))
    warn_of(found.problems)
    rows = [
        (p.model, p.environment, p.count, p.count_24h, p.mean_score, p.interval.low, p.interval.high, p.unscored)
        for p in found.pairs
    ]
    columns = ["model", "environment", "samples", "24 h", "mean", "low", "high", "unscored"]
    read = ["task_id", "model", "environment", "finished_at", "score", *reports.SERVED, *reports.COST_COLUMNS]
    samples = asyncio.run(store.scan(columns=read)).frame
    costs: list[tuple[float | None, ...]] = [() for _ in rows]
    if known := reports.costs_by(samples, "model", "environment"):
        columns += ["cost", "cost per point", "costed"]
        of_pairs = [known.get((pair.model, pair.environment)) for pair in found.pairs]
        costs = [(None, None, 0) if cost is None else (cost.total, cost.per_point, cost.samples) for cost in of_pairs]
    if as_json:
        names = [column.replace(" ", "_") for column in columns]
        print_json([dict(zip(names, (*row, *cost), strict=True)) for row, cost in zip(rows, costs, strict=True)])
    elif not rows:
        say(str(asyncio.run(no_samples(store, settings))))
    else:
        shown = [(*row, *map(reports.money, cost[:2]), *cost[2:]) for row, cost in zip(rows, costs, strict=True)]
        print_table(
            f"{len(rows)} models × environments", columns, shown, right=range(2, len(columns)), spare=columns[3:7]
        )
        if any(cost.is_partial for cost in known.values()):
            say("cost and cost per point are of the samples whose cost is known, counted in `costed`")
        for note in reports.served_notes(samples):
            say(note)
    return 0


def report(
    choices: ScoreChoices | None = None,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="File to write.")] = Path("report.html"),
    title: Annotated[str, Parameter(help="Title of the report.")] = "Headgate report",
    missing: MissingChoice = "bound",
    as_json: AsJson = False,
) -> int:
    """Write a self-contained HTML report of the stored samples. Exit status 3, and no page, when there are none."""
    given = choices or ScoreChoices()
    settings = given.load().settings
    store = existing_store(settings)
    frame, problems = asyncio.run(chosen_samples(store, given.chosen()))
    warn_of(problems)
    if frame.is_empty():
        raise asyncio.run(no_samples(store, settings))
    made = reports.build_report(frame, title=title, settings={"store": store.url}, with_png=False, missing=missing)
    write_page(output, made.html)
    scored = int(made.tables["leaderboard"]["scored"].sum())
    of = "" if scored == frame.height else f", {scored or 'none'} of them scored"
    document = {"path": str(output.resolve()), "samples": frame.height, "scored": scored}
    return tell(document, f"{counted(frame.height, 'sample')}{of}: {output.resolve()}", as_json=as_json)


def export(
    output: Annotated[
        Path, Parameter(help="File or folder to write; its suffix sets the format, such as samples.jsonl.")
    ],
    choices: ScoreChoices | None = None,
    *,
    form: Annotated[
        ExportFormat | None, Parameter(name="--format", help="Format of the file or folder. Default: by its suffix.")
    ] = None,
    min_score: Annotated[float | None, Parameter(help="Only samples with at least this score.")] = None,
    successes: Annotated[bool, Parameter(help="Only samples that their environment calls a success.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write stored samples for other tools: JSON lines, logs of inspect_ai, Parquet, a data set, lines for fine-tuning.

    An existing file is replaced once the new one is complete; a folder must be new or empty. Only the options
    `--environment` and `--campaign` choose samples; the settings of these names do not.
    """
    given = choices or ScoreChoices()
    chosen = given.chosen(min_score=min_score, successes=successes)
    store, written_as = _store(given), form or _form_of(output, EXPORT_FORMATS)

    async def exported(show: Callable[..., None] | None) -> int:
        await require_stored(store, chosen.campaign)
        return await storage.export_samples(store, output, written_as, now=time.time(), chosen=chosen, on_progress=show)

    with progress_bar("samples exported", is_shown=_is_watched(as_json)) as show:
        written = asyncio.run(exported(show))
    document = {"path": str(output), "rows": written}
    return tell(document, f"{counted(written, 'row')}: {output}", as_json=as_json)


def _form_of(path: Path, known: Sequence[str]) -> Literal["inspect", "jsonl", "parquet"]:
    """Return the format of a path's suffix; JSON lines without a suffix.

    Raises:
        InvalidInputError: if the suffix stands for no format, or for several of the `known` ones.
    """
    match path.suffix if not path.is_dir() else "":
        case ".parquet":
            return "parquet"
        case ".eval":
            return "inspect"
        case "" | ".jsonl" | ".ndjson":
            return "jsonl"
    raise InvalidInputError(
        f"the suffix of {path} does not say which format is meant",
        next_step=f"Give --format: one of {', '.join(known)}.",
    )


def import_(
    source: Annotated[Path, Parameter(help="File or folder that another tool, or `headgate export`, wrote.")],
    choices: NamedStoreChoices | None = None,
    *,
    form: Annotated[
        ImportFormat | None, Parameter(name="--format", help="Format of the file or files. Default: by the suffix.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Store samples from a file or folder that `headgate export` or another tool wrote; skip those already there.

    Exit status 4 when another tool's samples were left out because their scores cannot be stored.
    """
    settings = (choices or NamedStoreChoices()).load().settings
    store, campaign, read = storage.sample_store(settings), settings.campaign, 0
    written_as = form or _form_of(source, IMPORT_FORMATS)
    with progress_bar("samples read", is_shown=_is_watched(as_json)) as show:

        def told(done: int) -> None:
            nonlocal read
            read = done
            if show is not None:
                show(done)

        imported = asyncio.run(storage.import_samples(store, source, written_as, campaign=campaign, on_progress=told))
    known = read - imported.rows
    if as_json:
        print_json({
            "path": str(source), "rows": imported.rows, "known": known,
            "problems": [asdict(problem) for problem in imported.problems],
        })  # fmt: skip
    else:
        warn_of(imported.problems)
        before = f", {known:,} more were in the store already" if known else ""
        say(f"{counted(imported.rows, 'sample')} from {source}{before}")
    return CHECK_FAILED if imported.problems else 0


def compact(
    choices: StoreChoices | None = None,
    *,
    target_rows: Annotated[int | None, Parameter(help="Maximum number of rows in a merged part.")] = None,
    as_json: AsJson = False,
) -> int:
    """Merge small parts of the store into large ones; readers see every sample once at any moment."""
    settings = (choices or StoreChoices()).load().settings
    policy = storage.CompactionPolicy(conversation_days=settings.conversation_days)
    policy = policy if target_rows is None else replace(policy, target_rows=target_rows)
    done = asyncio.run(existing_store(settings).compact(time.time(), policy))
    document = {"merged_parts": done.parts_before, "into_parts": done.parts_after, "rows": done.rows}
    document["dropped_conversations"] = done.conversations
    parts = f"{counted(done.parts_before, 'part')} became {done.parts_after}"
    return tell(document, f"{parts}, {counted(done.rows, 'row')}", as_json=as_json)


def verify(choices: StoreChoices | None = None, *, as_json: AsJson = False) -> int:
    """Read every stored object and compare it with its checksum. Exit status 4 when one does not match."""
    found = asyncio.run(_store(choices).verify())
    if as_json:
        print_json({
            "manifests": found.manifests, "parts": found.parts, "rows": found.rows, "bytes": found.size_bytes,
            "problems": [asdict(problem) for problem in found.problems],
        })  # fmt: skip
    else:
        warn_of(found.problems)
        read = (counted(found.manifests, "manifest"), counted(found.parts, "part"), counted(found.rows, "row"))
        say(f"{', '.join(read)} read")
    return CHECK_FAILED if found.problems else 0


def repair_(
    file: Annotated[Path | None, Parameter(help="The damaged database.")] = None,
    choices: JournalChoices | None = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Recover what can be read of a damaged journal, and say what is lost. Exit status 4 when something is lost.

    The damaged file is kept beside the new one. Stop everything that uses it first. Without FILE, the campaign's
    journal is repaired; FILE may be the database of a job queue, of tokens, or of a placement ledger.
    """
    settings = (choices or JournalChoices()).load().settings
    if file is None and not isinstance(settings.journal, Path):
        raise InvalidInputError(
            f"the journal is in {settings.journal}, and PostgreSQL does its own recovery",
            next_step="Name a FILE; a damaged database is restored from its backup.",
        )
    path = file or storage.Journal.file_of(Path(str(settings.journal)), settings.campaign)
    done = storage.repair(path, time.time())
    if as_json:
        print_json({"path": str(path), "kept_as": str(done.kept_as or ""), "saved": done.rows, "lost": done.lost})
    elif done.kept_as is None:
        say(f"{path} is not damaged.")
    else:
        print_table(f"{path}: saved", ("table", "rows"), list(done.rows.items()), right=(1,))
        said = [*(f"Lost: {each}." for each in done.lost), f"The damaged file is kept as {done.kept_as}."]
        say("\n".join(said))
    return CHECK_FAILED if done.lost else 0


def _store(choices: StoreChoices | None) -> storage.SampleStore:
    return existing_store((choices or StoreChoices()).load().settings)


def _is_watched(as_json: bool) -> bool:
    return not as_json and sys.stdout.isatty()
