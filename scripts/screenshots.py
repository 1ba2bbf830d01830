"""Takes the screenshots of the documentation, with Chromium, of a small system that it starts.

    python scripts/screenshots.py [FOLDER]

By default into docs/images. Without Chromium or Playwright it says so.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from anyio.from_thread import start_blocking_portal
from playwright.sync_api import sync_playwright

from headgate.console import serve_console
from tests.console import worlds
from tests.console.conftest import CHROMIUM

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
SIZE: Final = {"width": 1280, "height": 800}
WATCHED_S: Final = 60
"""How long the page is open before, so that there is something to draw."""


def main(folder: Path) -> None:
    """Write the pictures into a folder."""
    with ExitStack() as stack:
        files = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        portal = stack.enter_context(start_blocking_portal())
        system = stack.enter_context(portal.wrap_async_context_manager(worlds.small_system(files)))
        served = serve_console(system.settings, port=0, **system.shown())
        address = stack.enter_context(portal.wrap_async_context_manager(served))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(address)
        page.wait_for_selector("text=is paused", timeout=60_000)
        page.wait_for_timeout(WATCHED_S * 1_000)
        page.screenshot(path=folder / "console.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
