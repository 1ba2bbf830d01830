"""The report of the idle suite as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from headgate.bench.artifact import bar_document
from headgate.bench.bars import Bar
from headgate.bench.idle.published import published
from headgate.bench.page import templates
from headgate.bench.scenario import Chart


def idle_page(
    summary: Mapping[str, Any],
    bars: Sequence[Bar],
    charts: Sequence[Chart],
    notes: Sequence[str],
    by_the_clock: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the page about a summary: verdict, bars, figures, every case beside what was published, every check."""
    from headgate.bench.charts import chart_svg  # noqa: PLC0415 - matplotlib takes a second to import

    figures = [
        (chart.title, Markup(chart_svg(asdict(chart), f"idle-{number}")))  # noqa: S704 - drawn by us
        for number, chart in enumerate(charts)
    ]
    checks = summary["checks"]
    return (
        templates()
        .get_template("idle.html.j2")
        .render(
            summary=summary,
            bars=[bar_document(bar) for bar in bars],
            cases=summary["cases"],
            published=published(),
            checks=checks,
            failed=[check for check in checks["checks"] if not check["passed"]],
            figures=figures,
            notes=notes,
            by_the_clock=by_the_clock,
        )
    )
