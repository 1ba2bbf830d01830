"""A real browser for the pages of the console, and consoles for it to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from headgate.config import Settings, load_settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(
    (
        found
        for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    "",
)
WIDE, PHONE = (1280, 800), (375, 812)
Serve = Callable[[AbstractAsyncContextManager[Any]], Any]


@pytest.fixture(scope="module")
def prompt() -> Iterator[None]:
    """Ask what is looked at, and tell pages of it, more often than people need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.console.sources.EVERY_S", 0.2)
        patch.setattr("headgate.console.sources.CALL_S", 0.002)
        patch.setattr("headgate.console.app.EVERY_S", 0.2)
        yield


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    """An event loop in a thread, beside the browser's own."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def serve(portal: BlockingPortal) -> Iterator[Serve]:
    """Enter an async context manager in that loop until the module ends; return what it gives."""
    with ExitStack() as stack:
        yield lambda context: stack.enter_context(portal.wrap_async_context_manager(context))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium."""
    if not CHROMIUM:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    is_root = os.geteuid() == 0
    with sync_playwright() as playwright:
        # Without a GPU Chromium simulates one, which takes longer than to draw.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--disable-gpu", *(["--no-sandbox"] if is_root else [])],
            chromium_sandbox=not is_root,
        )
        yield browser
        browser.close()


class Visits:
    """Opens pages, and remembers what went wrong on any of them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.errors: list[str] = []
        self.dialogs: list[str] = []

    @contextmanager
    def page(self, *, size: tuple[int, int] = WIDE, dark: bool = False, **options: Any) -> Iterator[Page]:
        """Give a page of a fresh browser profile."""
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", **options
        )
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", lambda said: said.type in {"error", "warning"} and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        yield page
        context.close()


@pytest.fixture
def visits(browser: Browser) -> Iterator[Visits]:
    """Visits that end with no error in any console; a test that expects one clears `errors`."""
    visits = Visits(browser)
    yield visits
    assert visits.errors == []
    assert visits.dialogs == []


def follow(page: Page, link: str) -> None:
    """Click what leads to another page; return once that one is there, and what is read is read of it."""
    with page.expect_event("domcontentloaded"):
        page.click(link)


def is_accessible(page: Page) -> list[str]:
    """Return what axe-core finds against a page."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:200]} {node['any'][:1]}" for one in found for node in one["nodes"][:3]]


def rows_without_id(page: Page) -> list[str]:
    """Return the rows and cells that news could make into others, although something in them can be pressed."""
    found: list[str] = page.evaluate("""() => {
        const repeated = ":is(tbody tr, li, .matrix td, .matrix thead th)";
        const rows = [...document.querySelectorAll(`#live ${repeated}:has(a, button, input)`)];
        const ids = rows.map((one) => one.id);
        return rows.filter(({ id }) => !id || ids.indexOf(id) < ids.lastIndexOf(id)).map((one) => one.outerHTML);
    }""")
    return found


def settings(folder: Path, **further: Any) -> Settings:
    """Return settings of a console whose store is in a folder of the test."""
    given = {"store": str(folder / "store"), "journal": str(folder / "journal"), **further}
    return load_settings(given, environ={}, file=None).settings
