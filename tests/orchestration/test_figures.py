"""The figures of a report in an artifact."""

from __future__ import annotations

import base64
import re

from headgate.orchestration.pages import MAX_FIGURE_BYTES, figures_markdown


def _svg(size: int) -> str:
    return "<svg>" + "x" * size + "</svg>"


def test_a_figure_is_carried_whole_with_its_caption() -> None:
    markdown = figures_markdown({"scores": _svg(10)})
    (image,) = re.findall(r"base64,([^)]+)\)", markdown)
    drawn = base64.b64decode(image).decode()
    assert re.sub("<rect [^>]*>", "", drawn) == _svg(10)
    assert drawn.startswith('<svg><rect width="100%" height="100%" fill="#ffffff"/>'), "or it is black on a dark page"
    assert "Mean score" in markdown


def test_the_scores_come_first_and_what_is_too_much_is_named() -> None:
    markdown = figures_markdown({"latency": _svg(MAX_FIGURE_BYTES), "errors": _svg(20), "scores": _svg(30)})
    assert markdown.index("Mean score") < markdown.index("ended in an error")
    assert markdown.count("base64,") == 2
    assert "Only in the page of the report: Latency" in markdown
    assert len(markdown) < 1.1 * MAX_FIGURE_BYTES
