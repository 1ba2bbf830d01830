"""A leaderboard to be looked at: its figure, one HTML page that needs nothing else, and Markdown for an artifact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headgate.reports.compared import DRAWN, RANKING, Compared
from headgate.reports.leaderboard import Leaderboard, Standing
from headgate.reports.leaderboard_rows import cell_rows, leaderboard_notes, standing_rows, versus_rows
from headgate.reports.ranking import neighbour_rows
from headgate.reports.svg import COLOURS, INK, blank_figure, draw_intervals, drawing, name_rows, short_name
from headgate.telemetry import printable, safe_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        costs = ("cost", "per point") if self.board.has_costs else ()
        columns = (*_RANKING, *costs, *(f"{measure}@{k}" for measure in ("pass", "maj") for k in self.board.ks))
        rows = [[row[column] for column in columns] for row in standing_rows(self.board)]
        yield _table("Ranking (each environment counts the same)", columns, rows, names=2)
        for note in leaderboard_notes(self.board, of_differences=False):
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


_CAPTION: Final = (
    "Mean score of each model, and its difference from {against} on the same tasks; lines are 95 % intervals"
)

DEFINITIONS: Final[Mapping[str, str]] = {
    "task": "What has the same environment and index: the same instance for every model, campaign and pass over the "
    "data. Samples of one task are not independent of each other.",
    **RANKING,
    "95 % interval": "By task: cluster-robust where tasks repeat (design effect: how many times the variance of as "
    "many independent samples), Wilson's or Student's where each task has one sample. Of one model at a time.",
    "p (Holm)": "How often chance alone would show such a difference, corrected for the number of comparisons: all "
    "models against a chosen reference, every two models against the best, which these samples chose.",
    "correlation, gain": "Of the two models' means of a task, and how many times as many tasks a comparison without "
    "pairing would need for an interval as narrow.",
    "pass@k": "Share of tasks that at least one of k samples would solve, unbiased, over the tasks with k samples or "
    "more; the interval is by task. The mean of n samples of each task is what others call avg@n.",
    "maj@k": "Share of tasks whose most frequent answer among k samples is a success: mean over groups of k samples, "
    "equally frequent answers by their share, samples without an answer not counted.",
}
"""Term -> what it means."""


def leaderboard_figure(board: Leaderboard) -> Figure | None:
    """Return means beside the differences from the reference, a row per model; None without models."""
    shown = board.standings[:DRAWN]
    if not shown:
        return None
    with drawing():
        figure = blank_figure(0.3 * len(shown) + 1.1)
        left, right = figure.subplots(1, 2, sharey=True)
        means = [one.mean for one in shown]
        draw_intervals(left, [(row, m.low, m.mean, m.high, COLOURS[0]) for row, m in enumerate(means)])
        _draw_differences(right, shown)
        name_rows(left, [short_name(one.model) for one in shown])
        left.set_xlim(-0.02, 1.02)
        left.set_xlabel("mean score")
        right.set_xlabel(f"difference from {short_name(board.against)}")
    return figure


def leaderboard_view(board: Leaderboard, *, title: str = "Leaderboard", period: str = "") -> Compared:
    """Return the leaderboard as a page and as Markdown."""
    against = safe_text(board.against, limit_chars=80)
    return Compared(
        title=title,
        period=period,
        tables=[
            ("Models", standing_rows(board) if board.standings else []),
            ("Neighbours", neighbour_rows(board.neighbours)),
            (f"Differences from the reference, {against}", versus_rows(board)),
            ("Environments", cell_rows(board)),
        ],
        notes=leaderboard_notes(board),
        problems=board.problems(),
        problems_title="What could not be told",
        nothing="There are no scored samples to compare.",
        names=frozenset({"model", "next", "verdict", "environment", "method", "group"}),
        definitions=DEFINITIONS,
        figure_name="leaderboard",
        caption=_CAPTION.format(against=against),
        draw=partial(leaderboard_figure, board),
    )


def _draw_differences(axes: Axes, shown: Sequence[Standing]) -> None:
    axes.axvline(0, color=INK, linewidth=1, alpha=0.6)
    rows = []
    for row, one in enumerate(shown):
        if one.versus is not None and (made := one.versus.difference) is not None:
            colour = COLOURS[5] if one.versus.is_told_apart else COLOURS[7]
            rows.append((row, made.low, made.difference, made.high, colour))
    draw_intervals(axes, rows)
    axes.set_title("orange: told apart; grey: not", loc="right")
    axes.tick_params(axis="y", length=0)
