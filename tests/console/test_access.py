"""Who is let in to the console, what for, and what another site's page can do: nothing."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from headgate.console import serve_console
from headgate.core.errors import InvalidSettingError
from headgate.net.token_stores import open_tokens
from headgate.net.tokens import Scope, new_token, revoked
from headgate.storage import SampleStore
from headgate.storage.objects import FolderObjects
from tests.console import worlds
from tests.console.conftest import Serve, Visits, follow, is_accessible, settings
from tests.storage.samples import sample

if TYPE_CHECKING:
    from playwright.sync_api import Route

PAGES = ("/", "/matrix", "/gates", "/why", "/workers", "/steer?run={run}")
ACTIONS = ("/steer", "/act")


@asynccontextmanager
async def guarded_console(folder: Path) -> AsyncIterator[tuple[str, dict[str, str], str]]:
    """Give a console that asks for tokens, tokens by what they may do, and the run that it shows."""
    url = f"sqlite:///{folder}/tokens.db"
    store, texts = open_tokens(url), {"console": "correct horse"}
    kinds = {
        "reader": [Scope.READ],
        "steerer": [Scope.READ, Scope.STEER],
        "worker": [Scope.CLAIM],
        "gone": [Scope.READ],
    }
    for name, scopes in kinds.items():
        token, text = new_token(name, scopes, now=time.time())
        store.add(revoked(token, now=time.time()) if name == "gone" else token, forget_before=0)
        texts[name] = text.reveal()
    store.close()
    await SampleStore(FolderObjects(folder / "store")).put_batch("b", [sample(1, model="lab/a@main")])
    made = settings(folder, monitor_tokens=url, console_token=texts["console"])
    async with (
        worlds.said(worlds.large_status(3, 2)) as run,
        serve_console(made, runs=[run], port=0) as address,
    ):
        yield address, texts, run


@pytest.fixture(scope="module")
def guarded(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str], str]:
    return serve(guarded_console(tmp_path_factory.mktemp("guarded")))


@pytest.fixture
def http(guarded: tuple[str, dict[str, str], str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded[0], headers={"Accept": "text/html"}) as client:
        yield client


def test_every_route_asks_for_the_scope_that_it_needs(
    guarded: tuple[str, dict[str, str], str], http: httpx.Client
) -> None:
    _, texts, run = guarded
    looking = {"nobody": 401, "worker": 401, "gone": 401, "reader": 200, "steerer": 200, "console": 200}
    acting = {"nobody": 401, "worker": 401, "gone": 401, "reader": 403, "steerer": 404, "console": 404}

    def answers(who: str) -> tuple[set[int], set[int]]:
        headers = {"Authorization": f"Bearer {texts[who]}"} if who in texts else {}
        looked = {http.get(path.format(run=run), headers=headers).status_code for path in PAGES}
        if who == "reader":
            corrections = ("/samples/invalidate", "/samples/rescore")
            assert {http.post(path, headers=headers).status_code for path in corrections} == {403}
        # What is let in asks for a part that is not watched: 404.
        return looked, {http.post(path, headers=headers, data={"run": "x"}).status_code for path in ACTIONS}

    assert {who: answers(who) for who in looking} == {who: ({looking[who]}, {acting[who]}) for who in looking}


def test_nothing_is_changed_by_a_get(http: httpx.Client, guarded: tuple[str, dict[str, str], str]) -> None:
    headers = {"Authorization": f"Bearer {guarded[1]['console']}"}
    assert [http.get(path, headers=headers).status_code for path in ("/act", "/sign-out")] == [405, 405]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {}],
    ids=["origin", "cross-site", "same-site", "without the form's key"],
)
def test_a_form_of_another_site_is_refused(
    guarded: tuple[str, dict[str, str], str], http: httpx.Client, headers: dict[str, str]
) -> None:
    assert http.post("/sign-in", data={"token": guarded[1]["console"]}).status_code == 303
    answer = http.post("/act", headers=headers, data={"kind": "jobqueue", "verb": "requeue"})
    assert answer.status_code == 403
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_somebody_signs_in_sees_the_page_that_they_asked_for_and_signs_out(
    guarded: tuple[str, dict[str, str], str], visits: Visits
) -> None:
    address, texts, _ = guarded
    with visits.page() as page:
        page.goto(f"{address}/matrix?state=late")
        assert is_accessible(page) == []
        page.fill("[name=token]", "wrong")
        follow(page, "button.primary")
        assert "not a token" in page.inner_text("[role=alert]") or "not known" in page.inner_text("[role=alert]")
        page.goto(f"{address}/matrix?state=late")
        page.fill("[name=token]", texts["reader"])
        follow(page, "button.primary")
        page.wait_for_url("**/matrix?state=late")
        assert page.locator("a.more").count() == 0  # who may only look is offered nothing else
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")

        def sign_out(route: Route) -> None:
            answer = route.fetch(max_redirects=0)
            time.sleep(1)  # the session has ended, the page does not know it yet, and has reasons to ask for news
            route.fulfill(response=answer)

        page.route("**/sign-out", sign_out)
        page.evaluate("""addEventListener("beforeunload", () => {
            setInterval(() => document.dispatchEvent(new Event("visibilitychange")), 100);
        })""")
        page.click("text=Sign out")
        page.wait_for_url("**/sign-in")
    visits.errors = [one for one in visits.errors if "401" not in one]


@pytest.mark.parametrize("path", ["/samples", "/leaderboard"])
def test_a_page_that_is_made_once_for_all_shows_each_their_name_their_rights_and_their_key(
    guarded: tuple[str, dict[str, str], str], path: str
) -> None:
    address, texts, _ = guarded

    def seen(who: str) -> tuple[bool, bool, list[str]]:
        with httpx.Client(base_url=address, headers={"Accept": "text/html"}) as client:
            client.post("/sign-in", data={"token": texts[who]})
            first, again = (client.get(path).text for _ in range(2))
        assert first == again
        return f"Signed in as {who}" in first, "\u2026</a>" in first, re.findall('name="form_key" value="(.*?)"', first)

    viewers = {who: seen(who) for who in ("reader", "steerer")}
    keys = {key for _, _, own in viewers.values() for key in own} | set(seen("reader")[2])
    assert {who: told[:2] for who, told in viewers.items()} == {
        "reader": (True, False),
        "steerer": (True, path == "/samples"),
    }
    assert len(keys) == 3
    assert all(keys)


def test_a_name_of_another_server_is_refused_without_tokens(serve: Serve, tmp_path: Path) -> None:
    address = serve(serve_console(settings(tmp_path), port=0))
    answers = [httpx.get(address, headers={"Host": host}).status_code for host in ("evil.example", "localhost")]
    assert answers == [421, 200]


def test_beyond_loopback_it_does_not_listen_without_a_token(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="loopback"):
        serve(serve_console(settings(tmp_path), host="0.0.0.0", port=0))
