"""An operator's half hour, in short: what `docs/how-to/operate.md` walks through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.console import serve_console
from tests.console import worlds
from tests.console.conftest import Serve, Visits, follow, is_accessible

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

MODEL, ENVIRONMENT = "baseline-random@main", "affine:sat"


def _steer(page: Page, address: str, model: str, verb: str, reason: str, value: str = "") -> None:
    page.goto(f"{address}/matrix?model={model.partition('@')[0]}")
    page.click(f"a[aria-label='Steer {model}']")
    page.check(f"dialog [value={verb}]")
    if value:
        page.fill("dialog [name=value]", value)
    page.fill("dialog [name=reason]", reason)
    page.click("dialog >> text=Preview")
    page.click("dialog >> button.primary:not(:has-text('Preview'))")
    page.wait_for_selector("dialog .message.good")


@pytest.mark.long
def test_an_operators_half_hour(serve: Serve, visits: Visits, tmp_path_factory: pytest.TempPathFactory) -> None:
    system = serve(worlds.small_system(tmp_path_factory.mktemp("operator")))
    settings = system.settings
    assert settings is not None
    address = serve(serve_console(settings, port=0, **system.shown()))

    with visits.page() as page:
        page.goto(address)
        page.wait_for_selector("text=acme/gone-7b@main is paused", timeout=20_000)
        assert "Look at the endpoint" in page.inner_text(".findings")

        _steer(page, address, "baseline-greedy@main", "set", "too many for now", "0.5")
        _steer(page, address, "acme/gone-7b@main", "pause", "its server is being replaced")

        worst = f"{address}/samples?model={MODEL}&environment={ENVIRONMENT}&order=worst"
        for _ in range(100):  # until the first batch is stored
            page.goto(worst)
            if page.locator("table.samples a").count():
                break
            page.wait_for_timeout(200)
        follow(page, "table.samples a")
        assert page.inner_text(".score strong") == "0.000"
        assert page.locator("pre").count() >= 2

        page.goto(f"{worst}&max_score=0.5&since=1h")
        follow(page, "text=Invalidate…")
        page.fill("input[name=reason]", "the prompt was cut off")
        follow(page, "form.invalidate button")
        page.wait_for_selector("text=no longer count")
        follow(page, "text=Show what is invalid")
        assert page.locator("tr.invalid").count() >= 1

        page.goto(f"{address}/samples?model={MODEL}&environment=affine:abd")
        follow(page, "text=Score again…")
        page.fill("[name=reason]", "a scorer that was too strict")
        page.fill("[name=scorer]", "abd 2")
        page.click("text=Count what would change")
        page.click("button:text-is('Score again')", timeout=30_000)
        page.wait_for_selector(".good:has-text('scored again, mark')", timeout=30_000)
        assert is_accessible(page) == []
        follow(page, "text=Back to the list")
        for href in [one.get_attribute("href") for one in page.query_selector_all("table.samples a")]:
            page.goto(f"{address}{href}")
            if "scored again" in page.inner_text("article"):
                break
        assert "by abd 2" in page.inner_text("article")
        assert "by local: a scorer that was too strict" in page.inner_text("article")
