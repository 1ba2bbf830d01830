"""What a matrix of scores ends with in a terminal: the ranking, and each model's mean in each environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headgate.reports.footnotes import footnotes
from headgate.reports.leaderboard import Leaderboard
from headgate.reports.leaderboard_rows import standing_rows
from headgate.telemetry import printable

_RANKING = ("rank", "model", "mean", "95 % interval", "missing", "environments")

_ANY_WIDTH = 10_000


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The ranking with its notes, and the mean score and count of scored samples of each pair; for `Console.print`.

    Models are rows and environments columns, or the other way round, or each pair is a row: the first that fits.

    Attributes:
        board: what is shown.
        environments: in this order, also those without a sample; those of the board when empty.
    """

    board: Leaderboard
    environments: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text]:
        if not self.board.standings:
            yield Text("No sample has a score.")
            return
        rows = [[row[column] for column in _RANKING] for row in standing_rows(self.board)]
        yield _table("Ranking (each environment counts the same)", _RANKING, rows, names=2)
        for note in footnotes(self.board, of_differences=False):
            yield Text(printable(note), style="dim")
        shapes = list(self._shapes())
        room = options.update(max_width=_ANY_WIDTH)
        fitting = (table for table in shapes if Measurement.get(console, room, table).maximum <= options.max_width)
        yield next(fitting, shapes[-1])

    def _shapes(self) -> Iterator[Table]:
        cells = {
            (cell.model, cell.environment): f"{cell.estimate.mean:.2f} ({cell.estimate.samples})"
            for cell in self.board.cells
        }
        models = [one.model for one in self.board.standings]
        shown = list(self.environments) or list(self.board.environments)
        title = "Mean score (scored samples)"
        by_model = [(m, *(cells.get((m, e), "") for e in shown)) for m in models]
        by_environment = [(e, *(cells.get((m, e), "") for m in models)) for e in shown]
        yield _table(title, ("model", *shown), by_model)
        yield _table(title, ("environment", *models), by_environment)
        yield _table(title, ("model", "environment", "mean"), [(m, e, mean) for (m, e), mean in cells.items()], names=2)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1) -> Table:
    """Return a table whose first `names` columns are aligned to the left."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(Text(printable(column)), justify="left" if place < names else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
