"""Tables with the notes that readers need, as one HTML page and as safe Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from headgate.reports.svg import inline_svg
from headgate.statistics import MIN_COMMON_TASKS
from headgate.telemetry import safe_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANKING: Final[Mapping[str, str]] = {
    "mean": "In one environment, the mean over the scored samples; over several, the plain mean of these means, "
    "equally weighted. * if the model has no score in one of them: models scored in more environments come first.",
    "missing": "The share of the model's samples without a score.",
    "cost, per point": "The cost of the model's samples, including judgements, as billed, else by its prices; and that "
    "cost divided by the sum of the scores. ‡ if the cost of some samples is not known: these are left out of both.",
    "worst case": "The mean with every missing score 0, by which models are listed: a model gains nothing by failing.",
    "rank": "1 plus the number of models that are better with p <= 5 % (Holm over all pairs of models). Models "
    "of equal rank are tied, which does not prove them equal. † if the order by mean could change, with the missing "
    "scores of one model 0 and those of another 1.",
    "group": "Models that share a letter cannot be distinguished. That does not prove them equal.",
    "neighbours": "The verdicts of the test of `headgate rank` on each model and the next one, about tasks like these, "
    "with the number of tasks of each environment: all verdicts are right with a probability of 95 %, however often "
    "one looks. They are corrected for all pairs of models, since the order depends on the scores; models that are not "
    "neighbours are not compared. One that comes before is not worse by more than the indifference.",
    "difference": "The mean, over the tasks that both models did, of the difference of their mean scores. Environments "
    f"with fewer than {MIN_COMMON_TASKS} common tasks are left out. * if the means cover more than these tasks.",
}
"""Term -> its meaning, in every table that ranks models."""

DEFINITIONS: Final[Mapping[str, str]] = {
    "sample": "One outcome of one task. Rows with the same task id are counted once: the scored one if there is one, "
    "else the one that ended first.",
    **RANKING,
    "95 % interval": "In the leaderboard by task: a task counts once however often it was sampled. In the scores, "
    "Wilson's interval if every score is 0 or 1, otherwise Student's t. For a single score that is neither, it is the "
    "whole range from 0 to 1, since nothing is known about the spread.",
    "success": "The share of the scored samples that their environment considers a success.",
    "errors": "Samples with an error of any kind, including the model's own (bad_answer, budget).",
    "missing score": "A failure of the provider, the environment or the judge, a cancelled sample, and one that "
    "exceeds a whole day's budget (daily_budget) has no score. It is never counted as 0; it is left out of means and "
    "shown below. An unusable answer (bad_answer) and a used-up budget of a sample (budget) are the model's own and "
    "score 0.",
    "provider error": "rate_limited, provider_failure, provider_timeout, auth, quota, bad_request or connection, after "
    "every retry that the policy allows.",
    "if missing were 0, if missing were 1": "The model's mean if every missing score were 0, or 1, over all "
    "environments in which it was sampled. The mean without errors lies between the two.",
    "latency": "Duration of a scored episode, including model calls and environment. p50 is the median; 5 % take "
    "longer than p95.",
    "tokens": "Prompt and completion tokens of all samples, as the endpoints count them.",
}
"""Term -> its meaning."""


def score(value: float | None) -> str:
    """Return a score with three digits; a dash when there is none."""
    return "–" if value is None else f"{value:.3f}"


def interval(low: float | None, high: float | None) -> str:
    """Return `0.512 – 0.733`; a dash when there is none."""
    return "–" if low is None or high is None else f"{low:.3f} – {high:.3f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage; values close to 0 or 100 are not rounded to them."""
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def seconds(value: float | None) -> str:
    """Return a duration with a sensible number of digits; a dash when there is none."""
    if value is None:
        return "–"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} s"


def count(value: int | None) -> str:
    """Return an integer with thousands separators; a dash when there is none."""
    return "–" if value is None else f"{value:,}"


def template(name: str, package: str = "headgate.reports") -> Template:
    """Return a template of this package or another; it escapes values, and undefined variables are errors.

    A package's template may extend `base.html.j2`, and use `parts.html.j2`.
    """
    return _environment(package).get_template(name)


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("headgate.reports")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for writer in (percent, count):
        environment.filters[writer.__name__] = writer
    return environment


MAX_BYTES: Final = 100_000
"""Maximum size of Markdown for an artifact: artifacts are database rows, and sent to the UI in one piece."""

_MOST_ROWS: Final = 200

DRAWN: Final = 60
"""Maximum models that a figure draws; the tables have all of them."""

_PROBLEMS: Final = 20
"""Maximum problems in Markdown; the page shows ten times as many."""

Rows = Sequence[Mapping[str, str]]
"""A table: each row maps the names of the columns, in their order, to cells."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a page and an artifact show.

    Attributes:
        period: a line below the title.
        tables: tables with their headings; empty ones are left out.
        names: columns of words instead of numbers, whose cells are escaped.
        notes: sentences below the first table.
        is_told_first: whether the problems come before the tables.
        figure_name: prefix of the figure's ids.
        draw: returns the figure to show with the caption; None without a figure.
    """

    title: str
    period: str
    tables: Sequence[tuple[str, Rows]]
    nothing: str
    names: frozenset[str]
    definitions: Mapping[str, str]
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()
    problems_title: str = ""
    is_told_first: bool = False
    figure_name: str = ""
    caption: str = ""
    draw: Callable[[], Figure | None] | None = None

    def figures(self) -> dict[str, str]:
        """Return the figure as an SVG element by its caption; empty if there is nothing to draw."""
        figure = self.draw() if self.draw is not None else None
        return {} if figure is None else {self.caption: inline_svg(figure, self.figure_name, self.caption)}

    def page(self) -> str:
        """Return one self-contained HTML page; equal input gives equal pages."""
        return template("compared.html.j2").render(
            title=safe_text(self.title, limit_chars=200),
            period=safe_text(self.period, limit_chars=200),
            tables=[(name, rows) for name, rows in self.tables if rows],
            figures=[(caption, Markup(svg)) for caption, svg in self.figures().items()],  # noqa: S704 - drawn by us
            notes=self.notes,
            problems=self.problems,
            problems_title=self.problems_title,
            is_told_first=self.is_told_first,
            nothing=self.nothing,
            names=self.names,
            definitions=self.definitions,
        )

    def markdown(self) -> str:
        """Return Markdown of at most 100 kB, with fewer rows per table if necessary."""
        limit = _MOST_ROWS
        while len((text := self._markdown(limit)).encode()) > MAX_BYTES and limit:
            limit //= 2
        return text

    def _markdown(self, limit: int) -> str:
        body = [
            part
            for name, rows in self.tables
            if rows
            for part in (f"## {plain(name)}", named_table(rows, limit, names=self.names))
        ]
        body = [*body[:2], bulleted(self.notes), *body[2:]] if body else [self.nothing, bulleted(self.notes)]
        shown = min(limit, _PROBLEMS)
        more = [f"{len(self.problems) - shown:,} more of the kind"] if shown < len(self.problems) else []
        told = [f"## {self.problems_title}", bulleted([*self.problems[:shown], *more])] if self.problems else []
        body = [*told, *body] if self.is_told_first else [*body, *told]
        words = "\n".join(f"- **{term}**: {said}" for term, said in self.definitions.items())
        parts = [f"# {plain(self.title)}", plain(self.period), *body, "## What the words mean", words]
        return "\n\n".join(filter(None, parts)) + "\n"


def named_table(rows: Rows, limit: int, *, names: frozenset[str]) -> str:
    """Return a Markdown table of one to `limit` rows, with a line about rows that are left out."""
    cells = [[code(cell) if column in names else cell for column, cell in row.items()] for row in rows[:limit]]
    header = [code(column) if "@" in column else column for column in rows[0]]
    rule = ["---" if column in names else "--:" for column in header]
    more = len(rows) - limit
    left_out = f"\n\n{more:,} more rows stand in the page." if more > 0 else ""
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *cells)) + left_out


def code(text: str, *, limit_chars: int = 300) -> str:
    """Return `text` as a code span for a table cell, so that none of it becomes a link, image, HTML or column."""
    shown = safe_text(text, limit_chars=limit_chars).replace("`", "'").replace("|", "\\|").strip()
    return f"`{shown}`" if shown else ""


def plain(text: str, *, limit_chars: int = 300) -> str:
    """Return `text` for a heading or sentence, with all Markdown and HTML characters escaped."""
    shown = safe_text(text, limit_chars=limit_chars)
    entities = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{character}" if character in "\\`*_{}[]()#+-.!|~:" else character for character in entities)


def bulleted(sentences: Iterable[str]) -> str:
    """Return sentences as a Markdown list, escaped."""
    return "\n".join(f"- {plain(sentence, limit_chars=1_000)}" for sentence in sentences)
