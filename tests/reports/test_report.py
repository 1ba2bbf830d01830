from __future__ import annotations

import re
from html.parser import HTMLParser

import polars as pl
import pytest
from markdown_it import MarkdownIt

from headgate.core import Secret
from headgate.reports import FIGURES, build_report
from headgate.reports.compared import DEFINITIONS, MAX_BYTES
from tests.reports.factories import campaign, frame, lost, row

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """What a browser would see of a page: its elements, attributes and ids, and whether it is well nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def values(self, name):
        return [value for key, value in self.attributes if key == name]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def report():
    return build_report(campaign(), title="Nightly", settings={"workers": 20})


def test_the_page_is_well_formed_and_needs_nothing_else(report):
    page = Page(report.html)
    assert not {"script", "link", "iframe", "object", "image", "img", "foreignobject"} & set(page.tags)
    outside = [value for name in ("href", "src", "xlink:href") for value in page.values(name) if value[:1] != "#"]
    assert outside == []
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "url(http" not in report.html
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page.values("content")


def test_ids_of_all_figures_together_are_unique_and_every_reference_is_met(report):
    page = Page(report.html)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    references = [value[1:] for value in page.values("href")] + re.findall(r"url\(#([^)]+)\)", report.html)
    assert references
    assert set(references) <= set(ids)


def test_every_figure_is_drawn_captioned_and_named_for_screen_readers(report):
    page = Page(report.html)
    assert set(report.figures_svg) == set(report.figures_png) == set(FIGURES)
    assert page.tags.count("svg") == len(FIGURES)
    for caption in FIGURES.values():
        assert caption in page.text
        assert caption in page.values("aria-label")
    assert all(png.startswith(b"\x89PNG") for png in report.figures_png.values())


@pytest.mark.long
def test_the_same_samples_give_the_same_report_in_any_order(report):
    again = build_report(campaign().sample(fraction=1, shuffle=True, seed=1), title="Nightly", settings={"workers": 20})
    assert again.html == report.html
    assert again.markdown == report.markdown
    assert again.figures_png == report.figures_png


def test_figures_take_the_colour_of_the_page_and_bring_no_style_sheet(report):
    for svg in report.figures_svg.values():
        assert "currentColor" in svg
        assert "#262b33" not in svg
        assert "<style" not in svg
        assert "<metadata" not in svg


def test_the_page_shows_totals_tables_and_what_the_figures_mean(report):
    text = Page(report.html).text
    assert "samples 120" in text
    assert "acme/model-2@main" in text
    assert "provider_failure" in text
    for term, meaning in DEFINITIONS.items():
        assert term in text
        assert meaning in text


def test_the_share_of_provider_errors_is_stated(undrawn):
    rows = [row(number) for number in range(15)] + [lost(15 + number) for number in range(5)]
    text = Page(build_report(frame(*rows), title="t", with_png=False).html).text
    assert "25.0 % of all samples ended in a provider error" in text


HOSTILE = (
    '<script>alert(1)</script>"><img src=x onerror=alert(2)>[x](javascript:alert(3)) | `code` ![i](http://x.example/i)'
)


@pytest.fixture(scope="module")
def hostile():
    rows = [
        row(1, model=HOSTILE, environment=HOSTILE),
        lost(2, model=HOSTILE, environment=HOSTILE, kind=HOSTILE, error=HOSTILE + "\n# heading\x1b[2J"),
    ]
    return build_report(frame(*rows), title=HOSTILE, period=HOSTILE, settings={HOSTILE: HOSTILE})


def test_model_output_stays_text_in_the_page_and_in_its_figures(hostile):
    page = Page(hostile.html)
    assert not {"script", "img"} & set(page.tags)
    assert "onerror" not in [name for name, _ in page.attributes]
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in hostile.html


def test_model_output_stays_text_in_markdown(hostile):
    html = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(hostile.markdown)
    page = Page(html)
    assert not {"script", "img", "a"} & set(page.tags)
    assert page.tags.count("h1") == 1
    assert "<script>alert(1)</script>" in page.text


def test_a_dollar_sign_in_a_name_is_no_formula():
    made = build_report(frame(row(1, model="acme/$x^2$@main"), row(2, model="acme/$@main")), title="t", with_png=False)
    assert "$x^2$" in made.figures_svg["scores"]


def test_markdown_tables_are_tables(report):
    html = MarkdownIt("gfm-like", {"linkify": False}).render(report.markdown)
    page = Page(html)
    assert page.tags.count("table") == 5
    assert "acme/model-0@main" in page.text


def test_markdown_is_cut_to_its_cap_and_says_so(undrawn):
    rows = [
        row(number, model=f"acme/{'long-' * 20}{number}@main", environment=f"test:{'name-' * 20}{number % 7}")
        for number in range(200)
    ]
    text = build_report(frame(*rows), title="many", with_png=False).markdown
    assert 10_000 < len(text.encode()) <= MAX_BYTES
    assert "more rows stand in the page" in text


def test_table_artifacts_are_capped(undrawn, monkeypatch):
    monkeypatch.setattr("headgate.reports.report.MAX_SCORE_ROWS", 4)
    rows = [row(number, model=f"acme/m{number}@main") for number in range(6)]
    made = build_report(frame(*rows), title="many", with_png=False)
    assert len(made.score_rows()) == 4
    assert made.tables["summary"].height == 6


@pytest.mark.parametrize("empty", [pl.DataFrame(), frame()])
def test_no_samples_give_a_report_that_says_so(empty):
    made = build_report(empty, title="Quiet night")
    assert "There are no samples to report on." in Page(made.html).text
    assert "There are no samples to report on." in made.markdown
    assert made.figures_svg == {}
    assert made.score_rows() == []


def test_samples_without_any_score_still_give_a_report():
    made = build_report(frame(lost(1), lost(2, kind="environment")), title="All failed", with_png=False)
    assert set(made.figures_svg) == {"samples", "activity", "errors"}
    assert "50.0 % of all samples ended in a provider error" in Page(made.html).text


def test_settings_are_shown_without_their_secrets(undrawn):
    Secret("tr0ub4dor-and-3")
    made = build_report(frame(row(1)), title="t", settings={"api_key": "tr0ub4dor-and-3"}, with_png=False)
    assert "tr0ub4dor" not in made.html
    assert "[redacted]" in Page(made.html).text


def test_the_period_is_that_of_the_samples_unless_given(undrawn):
    assert "2025-11-20 00:53 UTC to 2025-11-20 00:53 UTC" in build_report(frame(row(1)), title="t", with_png=False).html
    given = build_report(frame(row(1)), title="t", period="week 47", with_png=False)
    assert "week 47" in given.html
    assert "week 47" in given.markdown


def test_many_models_or_environments_are_a_heat_map_without_embedded_images(monkeypatch):
    for other in ("samples", "activity", "latency", "errors"):
        monkeypatch.setattr(f"headgate.reports.report.{other}_figure", lambda *_: None)
    small = build_report(campaign(2, 2, 2), title="t", with_png=False).figures_svg["scores"]
    many_models = build_report(campaign(27, 2, 2), title="t", with_png=False).figures_svg["scores"]
    many_environments = build_report(campaign(2, 18, 2), title="t", with_png=False).figures_svg["scores"]
    assert "QuadMesh" not in small
    for svg in (many_models, many_environments):
        assert "QuadMesh" in svg
        assert "<image" not in svg
    assert re.search(r">0\.\d\d</text>", many_models)
    assert "mean score</text>" in many_environments
