"""What commands print: tables for people, one JSON document for programs, errors with the next step."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
from cyclopts import Parameter
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.telemetry import counted as counted  # noqa: PLC0414 - for all commands
from headgate.telemetry import safe_text

_SENTENCE: Final = 28

CHECK_FAILED: Final = 4
"""Exit status of a command whose check did not hold: something differs or failed, or no sample has a score."""

INTERRUPTED: Final = 130
"""Exit status of a command that was told to stop before it was done."""

READER_GONE: Final = 141
"""Exit status of a command whose output has lost its reader: as of a program that SIGPIPE ends."""

AsJson = Annotated[bool, Parameter(name="--json", help="Print one JSON document instead of text.")]
QueueUrl = Annotated[
    str | None, Parameter(help="The job queue's server; also HEADGATE_JOBQUEUE_URL, with HEADGATE_JOBQUEUE_TOKEN.")
]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise SystemExit(leave_output())


def is_reader_gone() -> bool:
    """Return whether standard output is a pipe whose reader is gone."""
    looked = select.poll()
    looked.register(sys.stdout.fileno(), select.POLLOUT)
    return any(flags & select.POLLERR for _, flags in looked.poll(0))


def leave_output() -> int:
    """Redirect standard output to /dev/null, and return the exit status for that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


def print_json(document: Any) -> None:
    """Print a document as JSON."""
    sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode())
    sys.stdout.write("\n")


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[int] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table in which every name is whole; columns whose positions are in `right` are right-aligned.

    Where it does not fit, columns of `spare` are left out, the first of them first, and named below. Where that is not
    enough, each row is a paragraph with all of its columns.
    """
    out, cells, kept = console(), [[_cell(value) for value in row] for row in rows], list(range(len(columns)))
    widths = [_least_width([columns[at], *(row[at] for row in cells)]) for at in kept]
    left_out = []
    for name in spare:
        if name in columns and not _fits(widths, kept, out.width):
            kept.remove(columns.index(name))
            left_out.append(name)
    if not _fits(widths, kept, out.width):
        say(title)
        first = next((at for at in range(len(columns)) if at not in right), 0)
        for row in cells:
            say(row[first])
            say("  " + ", ".join(f"{columns[at]}: {cell}" for at, cell in enumerate(row) if at != first and cell))
        return
    placed = [place for place, at in enumerate(kept) if at in right]
    table = drawn_table(title, [columns[at] for at in kept], [[row[at] for at in kept] for row in cells], right=placed)
    for column, at in zip(table.columns, kept, strict=True):
        column.no_wrap = all(cell_len(row[at]) <= widths[at] for row in cells)
    out.print(table)
    if left_out:
        out.print(f"columns that do not fit: {', '.join(left_out)}; --json has them", style="dim")


def print_rows(
    title: str, rows: Sequence[Mapping[str, str]], *, names: frozenset[str], spare: Sequence[str] = ()
) -> None:
    """Print rows that map column names to cells as `print_table` does, nothing without rows.

    Columns not in `names` are right-aligned.
    """
    if rows:
        columns = list(rows[0])
        right = [place for place, name in enumerate(columns) if name not in names]
        print_table(title, columns, [[row[name] for name in columns] for row in rows], right=right, spare=spare)


def _fits(widths: Sequence[int], kept: Sequence[int], width: int) -> bool:
    return sum(widths[at] + len(" │ ") for at in kept) + 1 <= width


def _least_width(cells: Sequence[str]) -> int:
    """Return the width at which no name is broken; sentences may be, into lines of `_SENTENCE`."""
    return max(
        width if (width := cell_len(cell)) <= _SENTENCE else max(_SENTENCE, *map(cell_len, cell.split() or [""]))
        for cell in cells
    )


def tell(document: Any, *lines: str, as_json: bool) -> int:
    """Print a document for programs, or lines for people; return the exit status of a command that is done."""
    if as_json:
        print_json(document)
    else:
        for line in lines:
            say(line)
    return 0


def confirmed(would: str) -> bool:
    """Ask at the terminal whether to do what the sentence `would` states and cannot be undone; return the answer.

    Raises:
        InvalidInputError: if there is no terminal.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError(
            f"{would}, for good; nothing was done, as there is no terminal to ask at", next_step="Add --yes to do it."
        )
    say(f"{would}, for good", stderr=True)
    with contextlib.suppress(EOFError):
        if Confirm.ask("Go on?", console=console(stderr=True), default=False):
            return True
    say("nothing was done", stderr=True)
    return False


def write_page(path: Path, text: str) -> None:
    """Write a page to a file, and create the file's folder.

    Raises:
        InvalidInputError: if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}") from None


def drawn_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()
) -> Table:
    """Return a table for `print_table`; texts appear literally, even if rich would read `[/brackets]` as markup."""
    table = Table(title=escape(safe_text(title)), title_justify="left", header_style="bold")
    for position, column in enumerate(columns):
        header = Text(safe_text(column))
        table.add_column(header, justify="right" if position in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def print_error(error: HeadgateError, *, as_json: bool = False) -> None:
    """Print an error with its code and the next step, to standard error."""
    if as_json:
        print_json({"error": {"code": error.code, "message": error.message, "next_step": error.next_step}})
        return
    out = console(stderr=True)
    out.print(f"[bold red]error[/] [dim]\\[{error.code}][/] ", end="")
    out.print(safe_lines(error.message), markup=False, highlight=False)
    out.print(safe_lines(error.next_step), markup=False, highlight=False)


def say(text: str, *, stderr: bool = False) -> None:
    """Print a text literally; markup and terminal control characters in it have no effect."""
    console(stderr=stderr).print(safe_lines(text), markup=False, highlight=False)


def safe_lines(text: str) -> str:
    """Return `text` as `safe_text` does, but keep its line breaks."""
    return "\n".join(safe_text(line) for line in text.split("\n"))


def utc_time(at: float | None) -> str | None:
    """Return a wall time, in seconds since the epoch, as `2026-01-31 08:00:00Z`; None for none."""
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def console(*, stderr: bool = False) -> Console:
    """Return a console for standard output or error; without a terminal it is plain, and wide unless COLUMNS is set."""
    is_plain = not (sys.stderr if stderr else sys.stdout).isatty()
    is_sized = os.environ.get("COLUMNS", "").lstrip("0").isdigit()  # which rich reads itself
    return _Console(stderr=stderr, width=160 if is_plain and not is_sized else None, soft_wrap=is_plain)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return safe_text(str(value))
