"""A large system, many viewers, and names and answers of an enemy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from headgate.console import serve_console
from headgate.console.sources import MOST_POINTS, MOST_SERIES, History, Source, Sources
from headgate.core.status import CampaignStatus
from tests.console import worlds
from tests.console.conftest import PHONE, Serve, Visits, follow, is_accessible, settings

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal


def _shown(serve: Serve, folder: Path, status: CampaignStatus) -> str:
    run = serve(worlds.said(status, tasks=40))
    return serve(serve_console(settings(folder), runs=[run], port=0))


@pytest.fixture(scope="module")
def large(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _shown(serve, tmp_path_factory.mktemp("large"), worlds.large_status())


@pytest.fixture(scope="module")
def hostile(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _shown(serve, tmp_path_factory.mktemp("hostile"), worlds.hostile_status())


def test_a_thousand_models_in_64_environments_are_filtered_sorted_and_paged(large: str, visits: Visits) -> None:
    with visits.page() as page:
        page.goto(f"{large}/matrix")
        page.wait_for_selector("tbody tr")  # the first answer of this size may take longer than a page waits
        assert page.locator("tbody tr").count() == 30
        assert page.locator("thead th").count() == 9
        follow(page, "text=Next")
        assert page.locator("tbody th .name").first.inner_text() == "lab-13/model-0030@step-3000"
        page.goto(f"{large}/matrix?sort=lag&state=late&model=lab-4/&environment=suite:4")
        assert page.locator(".cell.late").count() > 0
        assert page.locator("thead a.name").all_inner_texts()[0] == "suite:40"
        assert len(page.content()) < 300_000
    with visits.page(size=PHONE, dark=True) as page:
        for path in ("/", "/gates"):
            page.goto(large + path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_the_names_of_runs_of_one_campaign_are_not_wider_than_a_phone(
    serve: Serve, visits: Visits, tmp_path: Path
) -> None:
    runs = [serve(worlds.said(worlds.large_status(2, spots), tasks=4)) for spots in (3, 64)]
    address = serve(serve_console(settings(tmp_path), runs=runs, port=0))
    with visits.page(size=PHONE) as page:
        for path in ("/", "/matrix", "/gates", "/why"):
            page.goto(address + path)
            page.wait_for_selector("text=62 more" if path == "/" else "form.filters")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            if path == "/":
                of_runs = page.locator("[aria-label=Endpoints] tbody th").all_inner_texts()
                assert {text.splitlines()[-2].strip() for text in of_runs} == {
                    "main: suite:00, suite:01, suite:02", "main: suite:00, suite:01 and 62 more",
                }  # fmt: skip


def test_what_an_enemy_wrote_is_text_wherever_it_is_shown(hostile: str, visits: Visits) -> None:
    with visits.page() as page:
        for path in ("/", "/matrix", "/gates", "/why", "/why?of=t-000000000000000000000001"):
            page.goto(hostile + path)
            live = page.inner_html("#live")
            assert "&lt;img src=x" in live or "why" in path, path
            assert page.locator("#live img, #live script, #live b:has(b)").count() == 0, path
            assert not set("\u202e\x1b") & set(page.content()), path
            assert len(live) < 100_000, path
        assert is_accessible(page) == []
        page.goto(f"{hostile}/matrix?model=%3Cscript%3Ealert(1)%3C/script%3E&sort=%22%3E%3Cimg%20src=x%3E")
        assert page.locator("#live img, #live script").count() == 0


def test_fifty_viewers_cost_a_source_what_one_does(portal: BlockingPortal) -> None:
    asked: list[float] = []

    async def ask() -> tuple[dict[str, object], dict[str, float | None], int]:
        asked.append(asyncio.get_running_loop().time())
        return {"state": "running"}, {"queue": 1.0}, 0

    async def watch() -> tuple[int, int, int]:
        sources = Sources([Source("run", "http://there", ask)])
        await asyncio.gather(*(sources.fresh() for _ in range(50)))
        nobody = len(asked)
        told = await asyncio.gather(*(sources.changed(sources.revision, 10) for _ in range(50)))
        return nobody, len(asked), len(set(told))

    assert portal.call(watch) == (1, 2, 1)


def test_what_cannot_be_read_is_shown_as_down_with_a_sentence(portal: BlockingPortal) -> None:
    async def ask() -> tuple[dict[str, object], dict[str, float | None], int]:
        raise KeyError("pairs")

    async def asked() -> Source:
        source = Source("run", "http://there", ask)
        await source.poll()
        return source

    source = portal.call(asked)
    assert not source.is_up
    assert "of another version" in source.problem


def test_history_is_bounded_and_forgets_what_nobody_tells_of() -> None:
    history = History()
    history.add(0.0, {f"series {number}": 1.0 for number in range(2 * MOST_SERIES)})
    for at in range(1, MOST_POINTS + 5):
        history.add(float(at), {"series 0": float(at)})
    history.validate()
    assert history.series("series 0")[-1] == MOST_POINTS + 4
    assert history.series("series 1") == []
    assert history.series("series 0", 3) == [MOST_POINTS + 2, MOST_POINTS + 3, MOST_POINTS + 4]


def test_a_viewer_gets_a_stream_of_revisions(large: str) -> None:
    with httpx.stream("GET", f"{large}/live", timeout=30) as answer:
        lines = answer.iter_lines()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert next(lines) == "event: tick"
