"""Every live screen over a small system that really runs: campaign, queue, pool and placement, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from headgate.console import serve_console
from tests.console import worlds
from tests.console.conftest import PHONE, WIDE, Serve, Visits, follow, is_accessible, rows_without_id

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def system(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> worlds.System:
    return serve(worlds.small_system(tmp_path_factory.mktemp("small")))


@pytest.fixture(scope="module")
def address(serve: Serve, system: worlds.System) -> str:
    return serve(serve_console(system.settings, port=0, **system.shown()))


@pytest.fixture
def page(visits: Visits) -> Iterator[Page]:
    with visits.page() as page:
        yield page


def test_now_says_what_is_wrong_since_when_what_holds_it_and_what_to_do(address: str, page: Page) -> None:
    page.goto(address)
    page.wait_for_selector("text=acme/gone-7b@main is paused", timeout=20_000)
    found = page.inner_text(".findings")
    assert "3 jobs are dead" in found
    assert "CUDA out of memory" in found
    assert "Look at the endpoint" in found
    assert page.locator(".finding time").count() >= 2
    assert page.locator("h1").inner_text().endswith("need attention")


def test_a_duration_goes_on_while_the_page_stands_open(address: str, page: Page) -> None:
    page.goto(address)
    page.evaluate("""
        const time = document.querySelector("time[data-runs=since]").cloneNode();
        time.dateTime = new Date(Date.now() - 50 * 3600 * 1000).toISOString();
        document.querySelector("main").append(time);  // where no news of the page replaces it
    """)
    page.wait_for_selector("main > time:text('2d 02h')")


def test_a_page_follows_by_itself(address: str, page: Page) -> None:
    page.goto(address)
    page.wait_for_selector("#link.on")
    cell = page.locator("table >> tr:has-text('nightly') >> td").nth(10)
    before = cell.inner_text()
    page.wait_for_function("(was) => document.querySelector('tbody tr').cells[11].innerText !== was", arg=before)


@pytest.mark.parametrize(
    ("size", "dark", "paths"),
    [
        pytest.param(PHONE, True, ("/", "/matrix", "/gates", "/why", "/workers"), id="narrow and dark"),
        pytest.param(WIDE, False, ("/", "/workers"), id="wide and light", marks=pytest.mark.long),
    ],
)
def test_every_screen_is_accessible_light_dark_and_narrow(
    address: str, visits: Visits, size: tuple[int, int], dark: bool, paths: tuple[str, ...]
) -> None:
    with visits.page(size=size, dark=dark) as page:
        for path in paths:
            page.goto(address + path)
            assert is_accessible(page) == [], path
            assert rows_without_id(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, size)


def test_a_cell_of_the_matrix_opens_its_samples(address: str, page: Page) -> None:
    page.goto(f"{address}/matrix?model=solver")
    page.wait_for_selector(".cell a")
    assert page.locator("tbody th .name").all_inner_texts() == ["baseline-solver@main"]
    follow(page, ".cell a")
    assert re.search(r"/samples\?model=baseline-solver%40main&environment=affine%3Aabd", page.url)


def test_a_model_in_an_environment_is_steered_from_its_cell_and_what_is_set_is_shown(address: str, page: Page) -> None:
    page.goto(f"{address}/matrix?model=greedy")
    cell = page.locator("td.cell", has=page.locator("[aria-label='Steer baseline-greedy@main in affine:sat']"))
    cell.locator(".more").click()
    page.check("[name=verb][value=set]")
    page.select_option("[name=what]", "factor")
    page.fill("[name=value]", "0.5")
    page.click("dialog >> text=Preview")
    page.wait_for_selector("dialog >> text=would set factor of baseline-greedy@main in affine:sat from default to 0.5")
    page.click("dialog .primary")
    page.wait_for_selector("dialog >> text=Done.")
    page.click("dialog >> text=Close")
    cell.locator("text=factor ×0.5").wait_for()
    assert "boost ×3" in page.inner_text("tbody th")


def test_two_endpoints_of_one_name_are_told_apart_on_a_phone(address: str, visits: Visits) -> None:
    for size in (WIDE, PHONE):
        with visits.page(size=size) as page:
            page.goto(f"{address}/gates")
            row = page.inner_text("#limits ~ .scroll tbody tr >> nth=0")
            assert row.count("http://127.0.0.1:") == 1


def test_gates_show_every_limit_and_draw_the_one_that_is_chosen(address: str, page: Page) -> None:
    page.goto(f"{address}/gates?find=simulated")
    page.wait_for_selector("tr.chosen >> text=simulated")
    page.wait_for_selector("#chart canvas", timeout=20_000)
    shown = page.goto(f"{address}/gates").text()
    assert "2,000,000" in shown
    assert "7,000,000" in shown


def test_gates_show_which_batches_requests_lie_in(address: str, page: Page) -> None:
    page.goto(f"{address}/gates?find=patient")
    row = page.locator("section:has(#batches) tbody tr").first
    row.wait_for(timeout=20_000)
    said = row.inner_text()
    assert "acme/patient-8b@main" in said
    assert re.search(r"batch_\w{8}", said)
    assert re.search(r"http://127\.0\.0\.1:\d+/v1\s+(open|in progress|validating|completed)", said)
    assert row.locator("time").count() == 2


def test_why_lists_what_waits_longest_and_says_which_gate_holds_it(address: str, page: Page) -> None:
    page.goto(f"{address}/why")
    page.wait_for_selector("tbody tr:has-text('queued') a", timeout=20_000)
    follow(page, "tbody tr:has-text('queued') a")
    assert page.locator(".chain li").count() >= 3
    assert "task" in page.inner_text(".titled >> nth=0")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("alpha.folding.0", "CUDA out of memory"), ("sft-70b", "waits for 8 GPUs"), ("simulated", "in flight")],
    ids=["job", "placement", "request"],
)
def test_why_knows_jobs_placements_and_requests(address: str, page: Page, wanted: str, said: str) -> None:
    page.goto(f"{address}/why?of={wanted}")
    assert said in page.inner_text("#live")


@pytest.mark.parametrize("model", ["baseline-solver", "acme/gone-7b@main"])
def test_why_knows_the_next_task_of_a_model_in_an_environment(address: str, page: Page, model: str) -> None:
    page.goto(f"{address}/why")
    page.fill("[name=of]", f"{model} affine:sat")
    page.press("[name=of]", "Enter")
    page.wait_for_selector(".chain li")
    said = page.inner_text("#live")
    assert "TASK, SAID BY NIGHTLY" in said.upper(), said
    assert page.locator(".chain li").count() >= 3


def test_why_says_so_when_nothing_knows_an_id(address: str, page: Page) -> None:
    page.goto(f"{address}/why?of=t-none")
    assert "No source that answers knows t-none" in page.inner_text("#live")


def test_a_dead_job_is_put_back_after_a_preview(address: str, system: worlds.System, page: Page) -> None:
    httpx.post(f"{system.jobqueue}/v1/jobs/beta.folding.0/withdraw", json={})  # unless it is dead still
    page.goto(f"{address}/workers")
    page.check("[aria-label='Choose job beta.folding.0']")
    page.click("text=Put back")
    page.wait_for_selector("dialog >> text=This would make beta.folding.0 pending again")
    assert is_accessible(page) == []
    page.click("dialog button.primary")
    page.wait_for_selector("dialog >> text=Done.")
    page.click("dialog >> text=Close")
    page.wait_for_selector("[aria-label='Choose job beta.folding.0']", state="detached")


def test_what_acts_on_workers_does_so_without_scripts(address: str, visits: Visits) -> None:
    with visits.page(java_script_enabled=False) as page:
        page.goto(f"{address}/workers")
        page.fill("[name=target][required]", "alpha.folding.0")
        follow(page, "button:text-is('Withdraw')")
        assert "This would make alpha.folding.0 dead" in page.inner_text("#live")


def test_nothing_chosen_is_a_sentence_with_a_way_back(address: str, page: Page) -> None:
    page.goto(f"{address}/workers")
    page.click("text=Put back")
    page.wait_for_selector("dialog >> text=Not done. nothing is chosen. Choose what is meant, then press again.")
    page.click("dialog >> text=Close")
    page.fill("[name=workers]", "many")
    page.click("button:text-is('Scale')")
    page.wait_for_selector("dialog >> text=workers must be a number")


def test_workers_shows_what_queue_and_pool_count_and_want(address: str, page: Page) -> None:
    page.goto(f"{address}/workers")
    said = page.inner_text("#live")
    assert re.search(r"Jobs: \d+ pending, \d in progress, 4 done, \d dead\.", said)
    assert re.search(r"alpha: [01] of 1 in use, [01] free, 0 waiting", said)
    assert "gpu-1.internal:8080, free" in said
    assert re.search(r"\d of \d to 2 workers are awake, \d wanted: .{5,}", said)
    assert "Since the start: 0 arrived, 0 served" in said


@pytest.fixture
def pool(system: worlds.System) -> str:
    """Address of the pool, whose workers follow the load: an earlier try may have left one drained."""
    root = f"{system.elastic}/elastic/v1"
    for worker in httpx.get(f"{root}/status").json()["pool"]["workers"]:
        httpx.post(f"{root}/workers/{quote(worker['worker_id'], safe='')}/unpin", json={}).raise_for_status()
    return root


@pytest.mark.usefixtures("pool")
def test_a_worker_of_a_pool_is_drained_and_released(address: str, page: Page) -> None:
    page.goto(f"{address}/workers")
    pool = page.locator("section", has_text="Pool chat")
    pool.get_by_role("button", name="Drain").first.click()
    page.click("dialog button.primary")
    page.wait_for_selector("dialog >> text=Done.")
    page.click("dialog >> text=Close")
    pool.get_by_role("button", name="Release").first.click()
    page.click("dialog button.primary")
    page.wait_for_selector("dialog >> text=Done.")


def test_what_is_pressed_stays_what_it_is_until_it_is_let_go(address: str, pool: str, page: Page) -> None:
    page.goto(f"{address}/workers")
    button = page.locator("section", has_text="Pool chat").get_by_role("button", name="Drain").first
    worker = (button.get_attribute("aria-label") or "").removeprefix("Drain ")
    button.hover()
    page.mouse.down()
    with page.expect_response(lambda answer: answer.url.endswith("/workers") and "Release" in answer.text()):
        httpx.post(f"{pool}/workers/{quote(worker, safe='')}/drain", json={}).raise_for_status()
    page.mouse.up()
    page.wait_for_selector("dialog >> text=Preview.")
    assert f"put {worker} to sleep" in page.inner_text("dialog")
    page.click("dialog >> text=Close")
    page.get_by_role("button", name=f"Release {worker}").click()
    page.click("dialog button.primary")
    page.wait_for_selector("dialog >> text=Done.")


def _at_its_rates(system: worlds.System, model: str) -> None:
    """Take back what an earlier try has changed of a model."""
    for change in ({"verb": "resume"}, {"verb": "set", "what": "factor", "value": None}):
        httpx.post(f"{system.run}/controls", json={"model": model, "reason": "as before", **change}).raise_for_status()


def _steered(page: Page) -> None:
    page.click("dialog >> text=Preview")
    page.wait_for_selector("dialog >> text=Preview.")
    page.click("dialog button.primary")
    page.wait_for_selector("dialog .message.good")


def test_a_model_is_paused_with_a_reason_resumed_and_its_factor_undone(
    address: str, system: worlds.System, page: Page
) -> None:
    _at_its_rates(system, "baseline-greedy@main")
    page.goto(f"{address}/matrix?model=greedy")
    page.click("a[aria-label='Steer baseline-greedy@main']")
    page.fill("dialog [name=reason]", "bad GPU")
    _steered(page)
    assert "paused model baseline-greedy@main" in page.inner_text("dialog")
    assert is_accessible(page) == []
    page.click("dialog >> text=Close")
    page.wait_for_selector("tr:has-text('baseline-greedy') .off")
    page.goto(address)
    page.click(".findings a:has-text('baseline-greedy@main is paused')")
    page.wait_for_selector("dialog >> text=bad GPU")
    page.check("dialog [value=resume]")
    _steered(page)
    page.goto(f"{address}/matrix?model=greedy")
    page.click("a[aria-label='Steer baseline-greedy@main']")
    page.check("dialog [value=set]")
    page.fill("dialog [name=value]", "0.5")
    _steered(page)
    page.click("dialog >> text=Undo >> nth=0")
    page.wait_for_selector("dialog >> text=Preview.")
    page.click("dialog button.primary")
    page.wait_for_selector("dialog >> text=undid setting factor")
    changes = page.inner_text("dialog .log")
    for change in ("undid setting factor of", "set factor of", "resumed", "paused"):
        assert f" {change} model baseline-greedy@main" in changes
    assert "paused model baseline-greedy@main, by local (change " in changes


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("NaN", "must be a number"),
        ("0,5", "must be a number, or `default` (got '0,5')"),
        ("-1", "must be a number from"),
    ],
)
def test_a_value_that_is_none_is_a_sentence(address: str, page: Page, value: str, said: str) -> None:
    page.goto(f"{address}/matrix?model=greedy")
    page.click("a[aria-label='Steer baseline-greedy@main']")
    page.check("dialog [value=set]")
    page.fill("dialog [name=value]", value)
    page.click("dialog >> text=Preview")
    page.wait_for_selector("dialog [role=alert]")
    assert said in page.inner_text("dialog [role=alert]")


def test_a_change_is_previewed_and_made_in_a_page_of_its_own(address: str, system: worlds.System, page: Page) -> None:
    page.goto(f"{address}/matrix?model=greedy")
    page.goto(address + str(page.get_attribute("a[aria-label='Steer baseline-greedy@main']", "href")))
    page.check("[value=pause]")
    page.fill("[name=reason]", "bad GPU")
    follow(page, "text=Preview")
    assert "Preview." in page.inner_text("main")
    assert page.get_attribute("#live", "hx-get") is None, "news of the page would replace the preview"
    follow(page, "button.primary")
    assert "paused model baseline-greedy@main" in page.inner_text("main")
    _at_its_rates(system, "baseline-greedy@main")


def test_the_second_of_two_operators_is_told_what_the_first_did(
    address: str, system: worlds.System, visits: Visits
) -> None:
    _at_its_rates(system, "baseline-random@main")
    with visits.page() as one, visits.page() as other:
        for page, value in ((one, "0.5"), (other, "0.25")):
            page.goto(f"{address}/matrix?model=random")
            page.click("a[aria-label='Steer baseline-random@main']")
            page.check("dialog [value=set]")
            page.fill("dialog [name=value]", value)
            page.click("dialog >> text=Preview")
            page.wait_for_selector("dialog >> text=Preview.")
        for page in (one, other):
            page.click("dialog button.primary")
            page.wait_for_selector("dialog .message:not(:has-text('Preview'))")
        assert "Done." in one.inner_text("dialog")
        assert "Not done. the control was changed meanwhile" in other.inner_text("dialog")


def test_a_run_that_ends_while_it_is_watched_is_said_to_have_ended(
    address: str, system: worlds.System, page: Page, portal: object
) -> None:
    page.goto(address)
    page.wait_for_selector("#link.on")
    portal.call(system.stop.set)  # type: ignore[attr-defined]
    page.wait_for_selector("text=Campaign nightly has ended", timeout=30_000)


def test_on_a_phone_the_name_of_the_screen_is_to_be_seen(address: str, visits: Visits) -> None:
    with visits.page(size=PHONE) as page:
        for path in ("/", "/workers"):
            page.goto(address + path)
            box, width = page.locator(".top nav a[aria-current]").bounding_box(), PHONE[0]
            assert box is not None
            assert 0 <= box["x"] <= width - box["width"]
