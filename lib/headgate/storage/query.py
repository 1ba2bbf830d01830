"""SQL over the visible parts, read in place by DuckDB: one read-only statement, a view `samples`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import polars as pl

from headgate.core import errors
from headgate.storage.frames import verify
from headgate.storage.manifest import Part, Problem, Visible
from headgate.storage.marks import EVERY_SAMPLE, Marks
from headgate.storage.objects import ObjectStore
from headgate.storage.schema import COLUMNS, FRAME_SCHEMA, lacking_columns

_SQL_TYPES: Final = {"String": "VARCHAR", "Int64": "BIGINT", "Float64": "DOUBLE", "Boolean": "BOOLEAN"}
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,  # Parquet is built in; nothing is fetched from a network
    "autoload_known_extensions": False,
}
_MAYBE_OF_A_PART: Final = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)
_READ_ONLY: Final = frozenset({"SELECT", "EXPLAIN"})

QUERY_COLUMNS: Final[tuple[str, ...]] = (*COLUMNS, "date")
"""Columns of the view `samples`: those of a sample and the UTC day on which it ended.

It has the samples that count, each task once, with their current scores; `stored` has all rows as stored, `marks` the
marks made since.
"""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query.

    Attributes:
        problems: manifests and parts that were left out.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    problems: tuple[Problem, ...]


def query(objects: ObjectStore, visible: Visible, sql: str) -> QueryResult:
    """Return the result of one SELECT (or EXPLAIN) over the view `samples`.

    Raises:
        errors.InvalidInputError: if the SQL cannot be run, changes anything, or reaches outside the store.
        errors.StoreError: if the store fails.
    """
    statement = _checked(sql)
    parts, marks = visible.parts, visible.marks
    try:
        return _answer(objects, parts, marks, statement, visible.problems)
    except _MAYBE_OF_A_PART as error:
        # DuckDB stops at the first object that it cannot read. Read each object once to find all of those.
        problems = verify(objects, visible).problems
        bad = {problem.path for problem in problems}
        good = [part for part in parts if part.path not in bad]
        if len(good) == len(parts):
            raise _refused(error) from error
    except duckdb.Error as error:
        raise _refused(error) from error
    try:
        return _answer(objects, good, marks, statement, problems)
    except duckdb.Error as error:
        raise _refused(error) from error


def _checked(sql: str) -> str:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _refused(error) from error
    if len(statements) != 1:
        raise errors.InvalidInputError(
            f"a query must be one statement (got {len(statements)})", next_step="Run them one by one."
        )
    if (kind := statements[0].type.name) not in _READ_ONLY:
        step = "Samples are never changed; export them to work on a copy."
        if kind == "MULTI":  # DuckDB makes a type of the values first
            step = "Name the columns of a PIVOT: ON environment IN ('affine:sat', …)."
        raise errors.InvalidInputError(f"a query must be a SELECT (got {kind})", next_step=step)
    return sql


def _answer(
    objects: ObjectStore, parts: Sequence[Part], marks: Marks, sql: str, problems: tuple[Problem, ...]
) -> QueryResult:
    root, files = objects.query_root()
    with duckdb.connect(":memory:", config=_CONFIG) as connection:
        if files is not None:
            connection.register_filesystem(files)
        _tabulate(connection, "marks", marks.history)
        _tabulate(connection, "marked", marks.state)
        connection.execute(_view(root, parts, marks))
        connection.execute("SET TimeZone = 'UTC'")  # as `date`, wherever this machine is
        # From here on only the store can be read, and the query cannot undo that.
        connection.execute(f"SET allowed_directories = [{_quoted(root)}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        answer = connection.execute(sql)
        columns = tuple(column[0] for column in answer.description or ())
        return QueryResult(columns, tuple(answer.fetchall()), problems)


def _tabulate(connection: duckdb.DuckDBPyConnection, name: str, rows: pl.DataFrame) -> None:
    """Create a table of rows, through a file, since DuckDB needs PyArrow (100 MB) to read polars frames."""
    columns = ", ".join(f"{_name(column)} {_SQL_TYPES[str(kind)]}" for column, kind in rows.schema.items())
    connection.execute(f"CREATE TABLE {name} ({columns})")
    if rows.height:
        with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
            rows.write_parquet(file.name)
            connection.execute(f"INSERT INTO {name} FROM read_parquet({_quoted(file.name)})")


def _view(root: str, parts: Sequence[Part], marks: Marks) -> str:
    if not parts:
        columns = ", ".join(f"NULL::{kind} AS {_name(name)}" for name, kind in _column_types())
        return f"CREATE VIEW stored AS SELECT {columns} WHERE false; CREATE VIEW samples AS FROM stored"  # noqa: S608
    alike = [[part for part in parts if part.added == added] for added in sorted({part.added for part in parts})]
    stored = "CREATE VIEW stored AS " + " UNION ALL ".join(_source(root, some) for some in alike)
    # Two journals, or an import, can store a task twice. By environment, so that conditions on it still skip parts.
    first = "row_number() OVER (PARTITION BY environment, task_id ORDER BY finished_at) = 1"
    counted = "SELECT * FROM stored"
    if marks.log:
        counted = f"SELECT * EXCLUDE (invalid) FROM {EVERY_SAMPLE} WHERE invalid IS NOT true"  # noqa: S608 - as above
    return f"{stored}; CREATE VIEW samples AS {counted} QUALIFY {first}"


def _source(root: str, parts: Sequence[Part]) -> str:
    """Return the statement that reads parts with the same columns."""
    paths = ", ".join(_quoted(root + part.path) for part in parts)
    # Environment and day come from the folders, so that DuckDB does not open parts that a condition excludes.
    source = f"read_parquet([{paths}], hive_partitioning = true, hive_types = {{environment: VARCHAR, date: DATE}})"
    added = lacking_columns(parts[0].added).items()
    lacking = {name: "NULL" if value is None else _quoted(str(value)) for name, value in added}
    chosen = ", ".join(
        f"{lacking[name]}::{kind} AS {_name(name)}" if name in lacking else _name(name)
        for name, kind in _column_types()
    )
    return f"SELECT {chosen} FROM {source}"  # noqa: S608 - our own names and paths


def _column_types() -> list[tuple[str, str]]:
    return [(name, _SQL_TYPES[str(kind)]) for name, kind in FRAME_SCHEMA.items()] + [("date", "DATE")]


def _name(column: str) -> str:
    return f'"{column}"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _refused(error: duckdb.Error) -> errors.InvalidInputError:
    # DuckDB prints the query with a marker below it; the reader has the query and gets one line.
    said = " ".join(str(error).partition("\nLINE ")[0].split()).rstrip(".")
    return errors.InvalidInputError(
        f"the query cannot be run: {said}",
        next_step=f"The view `samples` has the columns {', '.join(QUERY_COLUMNS)}.",
    )
