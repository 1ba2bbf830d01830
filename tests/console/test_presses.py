"""What is pressed, ticked or has the focus while news of the page comes in: it acts on what it was meant for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.console import serve_console
from headgate.core.status import CampaignStatus
from headgate.jobqueue.server import ServerSettings, running_server
from tests.console import worlds
from tests.console.conftest import Serve, Visits, settings

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Route

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prompt")]

ALL = (0, 1, 2, 3)
OPEN = "dialog[open] h1"


class _World:
    """A campaign, of whose models those in `paused` are paused, each for a reason of its own; and a queue."""

    def __init__(self) -> None:
        whole = worlds.large_status(len(ALL), 2)
        since = time.time() - 1_000
        self._status = replace(
            whole,
            requests=(),
            pairs=tuple(replace(one, lag_s=0.0) for one in whole.pairs),
            models=tuple(
                replace(one, is_paused=True, pause_reason=f"for cause {number}", pause_until=None,
                        paused_since=since + number, last_error=None)
                for number, one in enumerate(whole.models)
            ),
        )  # fmt: skip
        self.names = [one.model for one in self._status.models]
        self.paused: tuple[int, ...] = ALL
        self.console = self.queue = ""

    def status(self) -> CampaignStatus:
        models = tuple(
            one if number in self.paused else replace(one, is_paused=False, pause_reason=None)
            for number, one in enumerate(self._status.models)
        )
        return replace(self._status, captured_at=time.time(), models=models)

    def tell_queue(self, path: str, **body: object) -> dict[str, Any]:
        """Return what the queue answers."""
        said: dict[str, Any] = httpx.post(f"{self.queue}/v1/{path}", json=body).raise_for_status().json()
        return said


@pytest.fixture(scope="module")
def world(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> _World:
    world = _World()
    run = serve(worlds.said(world.status))
    world.queue = serve(running_server(ServerSettings(database="memory:", port=0))).url
    folder = tmp_path_factory.mktemp("console")
    world.console = serve(serve_console(settings(folder), runs=[run], jobqueues=[world.queue], port=0))
    return world


@pytest.fixture
def page(visits: Visits, world: _World) -> Iterator[Page]:
    """Now, with every model paused."""
    world.paused = ALL
    with visits.page() as page:
        page.goto(world.console)
        for name in world.names:
            page.wait_for_selector(_finding(name))
        page.wait_for_selector("#link.on")
        yield page


def _finding(name: str) -> str:
    return f".findings a:has-text('{name} is paused')"


def _opened(page: Page) -> str:
    page.wait_for_selector(OPEN)
    return page.inner_text(OPEN)


def test_the_focus_stays_on_its_finding_while_others_come_and_go(world: _World, page: Page) -> None:
    page.focus(_finding(world.names[1]))
    world.paused = (1, 3)
    page.wait_for_selector(_finding(world.names[0]), state="detached")
    page.keyboard.press("Enter")
    assert _opened(page) == world.names[1]


def test_a_finding_that_was_looked_up_is_not_made_into_another(world: _World, page: Page) -> None:
    found = page.wait_for_selector(_finding(world.names[2]))
    world.paused = (1, 2)
    page.wait_for_selector(_finding(world.names[0]), state="detached")
    found.click()
    assert _opened(page) == world.names[2]


def test_a_tick_stays_with_its_job_while_others_are_put_back(world: _World, page: Page) -> None:
    jobs = [f"omega.{time.time_ns()}.{number}" for number in range(3)]
    world.tell_queue("jobs", jobs=[{"id": job, "team": "omega", "task": "folding"} for job in jobs])
    for job in jobs:
        world.tell_queue(f"jobs/{job}/withdraw", reason="by a test")
    page.goto(f"{world.console}/workers")
    page.check(f"[aria-label='Choose job {jobs[1]}']")
    # What news brings is seldom of the second that the page shows.
    page.evaluate("""document.addEventListener("htmx:before:swap", () => {
        for (const time of document.querySelectorAll("#live time")) time.textContent = "a while";
    })""")
    world.tell_queue("dead-jobs/requeue", job_ids=[jobs[0], jobs[2]])
    page.wait_for_selector(f"[aria-label='Choose job {jobs[0]}']", state="detached")
    page.click("text=Put back")
    page.wait_for_selector(f"dialog >> text=This would make {jobs[1]} pending again.")


def test_a_button_under_the_space_bar_stays_what_it_is(world: _World, page: Page) -> None:
    added = world.tell_queue("resources", resources=[{"pool": "omega", "host": "gpu-9.internal", "port": 8080}])
    server = added["resources"][0]["resource_id"]
    world.tell_queue(f"resources/{server}/open", reason="as before")
    page.goto(f"{world.console}/workers")
    page.focus("button:text-is('Drain')")
    page.keyboard.down(" ")
    with page.expect_response(lambda answer: answer.url.endswith("/workers") and ">Open<" in answer.text()):
        world.tell_queue(f"resources/{server}/drain", reason="by a test")
    page.keyboard.up(" ")
    page.wait_for_selector("dialog >> text=no new job")
    page.click("dialog >> text=Cancel")
    page.wait_for_selector("button:text-is('Open')")


def test_a_finger_that_has_let_go_still_holds_until_that_is_a_click(world: _World, visits: Visits) -> None:
    world.paused = ALL
    with visits.page(has_touch=True) as page:
        page.goto(world.console)
        page.evaluate("""addEventListener("pointerup", () => {
            const swap = new CustomEvent("htmx:before:swap", { cancelable: true });
            document.body.dataset.swaps = document.dispatchEvent(swap) ? "at once" : "later";
        })""")
        page.locator(_finding(world.names[0])).tap()
        assert _opened(page) == world.names[0]
        assert page.get_attribute("body", "data-swaps") == "later"


def test_the_second_click_of_a_double_click_leaves_the_dialog_open(world: _World, page: Page) -> None:
    box = page.locator(_finding(world.names[0])).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.up()
    assert _opened(page) == world.names[0]
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    assert page.locator(OPEN).count() == 1
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.wait_for_selector(OPEN, state="detached")


def test_of_two_presses_the_last_one_is_answered(world: _World, page: Page) -> None:
    held: list[Route] = []
    page.route("**/steer?**", lambda route: route.continue_() if held else held.append(route))
    page.click(_finding(world.names[0]))
    page.click(_finding(world.names[1]))
    assert _opened(page) == world.names[1]
    with page.expect_response("**/steer?**") as answer:
        held[0].continue_()
    answer.value.finished()
    assert _opened(page) == world.names[1]


def test_a_press_that_the_console_does_not_answer_is_said(world: _World, page: Page, visits: Visits) -> None:
    page.route("**/steer?**", lambda route: route.abort())
    page.click(_finding(world.names[0]))
    page.wait_for_selector("dialog >> text=The console did not answer.")
    page.click("dialog >> text=Close")
    page.unroute("**/steer?**")
    page.click(_finding(world.names[0]))
    assert _opened(page) == world.names[0]
    assert len(visits.errors) == 2
    visits.errors.clear()


def test_pages_that_nobody_sees_keep_no_connection_from_the_one_that_is_seen(world: _World, page: Page) -> None:
    streams: list[str] = []
    context: BrowserContext = page.context
    context.on("request", lambda request: request.url.endswith("/live") and streams.append(request.url))
    for _ in range(7):  # a browser keeps six connections to a server
        hidden = context.new_page()
        hidden.goto(world.console)
        hidden.wait_for_selector("#link.on")
        hidden.evaluate("""
            Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
            document.dispatchEvent(new Event("visibilitychange"));
        """)
    page.click(_finding(world.names[3]))
    assert _opened(page) == world.names[3]
    assert len(streams) == 7 + 1  # of those that are not seen one listens on
    hidden.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    hidden.wait_for_selector("#link.on")
    world.paused = (3,)
    hidden.wait_for_selector(_finding(world.names[0]), state="detached")


@pytest.mark.parametrize(("path", "field"), [("/why", "of"), ("/matrix", "model"), ("/workers", "find")])
def test_what_is_typed_stays_while_news_comes_in(world: _World, page: Page, path: str, field: str) -> None:
    page.goto(f"{world.console}{path}")
    page.wait_for_selector("#link.on")
    page.evaluate("addEventListener('htmx:after:swap', () => { window.news = (window.news || 0) + 1; })")
    page.fill(typed := f"#live [name={field}]", "baseline")
    before = page.evaluate("window.news || 0")
    page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
    page.wait_for_function("before => (window.news || 0) > before", arg=before)
    assert page.input_value(typed) == "baseline"
