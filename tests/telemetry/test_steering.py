"""Who may steer a campaign over its monitoring API, and in whose name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from headgate.core import Secret
from headgate.core.errors import ControlChangedError
from headgate.net.authority import Authority, Caller, Refused, Verdict
from headgate.net.tokens import Refusal, Scope
from headgate.telemetry import monitor_app, new_registry
from tests.telemetry.factories import status

PAUSE = {"verb": "pause", "model": "acme/small@main", "reason": "too slow"}


class Steering:
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.orders: list[tuple[dict[str, Any], str, bool]] = []

    def document(self) -> dict[str, Any]:
        return {"controls": [], "log": [], "revision": len(self.orders)}

    async def steer(self, document: dict[str, Any], by: str, *, dry_run: bool) -> dict[str, Any]:
        if document["revision"] == 0:
            raise ControlChangedError("the control was changed meanwhile: paused of the whole run, by ops")
        self.orders.append((document, by, dry_run))
        return {"did": "paused", "before": None, "after": True, "revision": 1, "dry_run": dry_run}


class Named(Authority):
    """Knows tokens that are the names of their scopes, `team` for one of a team."""

    def __init__(self) -> None: ...

    async def identify(self, text: str | None, now: float) -> Verdict:
        words = (text or "").split("+")
        if not set(words) <= {*Scope, "team"}:
            return Refused(Refusal.UNKNOWN)
        scopes = frozenset(Scope(word) for word in words if word != "team")
        return Caller("1", "ops", scopes, frozenset({"a"}) if "team" in words else None)


@pytest.fixture
def steering() -> Steering:
    return Steering()


def asking(steering: Steering, **options: Any) -> httpx.AsyncClient:
    app = monitor_app(status, new_registry(status), steering=steering, **options)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


ROUTES = (
    "/",
    "/status",
    "/status/summary",
    "/status/models",
    "/status/queue",
    "/metrics",
    "/controls",
    "/openapi.json",
)


async def test_the_matrix_of_routes_and_scopes(steering: Steering) -> None:
    may = {
        "": (401, 401),
        "nobody": (401, 401),
        "read": (200, 403),
        "steer": (403, 200),
        "read+steer": (200, 200),
        "admin": (200, 200),
        "submit+claim+complete+legacy": (403, 403),
        "read+steer+team": (403, 403),
        "shared": (200, 200),
    }
    async with asking(steering, token=Secret("shared"), authority=Named()) as client:
        for token, (reads, steers) in may.items():
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            for route in ROUTES:
                assert (await client.get(route, headers=headers)).status_code == reads, (token, route)
            assert (await client.post("/controls", json=PAUSE, headers=headers)).status_code == steers, token
            assert (await client.get("/health")).status_code == 200
    assert [by for _, by, _ in steering.orders] == ["ops", "ops", "ops", "monitor_token"]


async def test_nothing_is_changed_but_by_a_post_to_its_route(steering: Steering) -> None:
    async with asking(steering) as client:
        for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE"):
            answer = await client.request(method, "/controls?verb=pause", json=PAUSE)
            assert answer.status_code == (200 if method == "GET" else 405), method
        for route in ROUTES[1:6]:
            assert (await client.post(route, json=PAUSE)).status_code == 405
    assert steering.orders == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Content-Type": "text/plain"}, 422),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 422),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}, 200),
    ],
    ids=str,
)
async def test_no_page_of_another_site_steers(steering: Steering, headers: dict[str, str], code: int) -> None:
    async with asking(steering) as client:
        content = '{"verb": "pause"}'
        answer = await client.post("/controls", content=content, headers={"Content-Type": "application/json"} | headers)
    assert answer.status_code == code
    assert len(steering.orders) == (code == 200)


async def test_a_browser_that_remembers_a_password_does_not_steer(steering: Steering) -> None:
    async with asking(steering, token=Secret("shared")) as client:
        answer = await client.post("/controls", json=PAUSE, auth=("x", "shared"), headers={"User-Agent": "Mozilla/5.0"})
    assert (answer.status_code, steering.orders) == (403, [])


async def test_an_order_carries_who_gave_it(steering: Steering) -> None:
    headers = {"X-Headgate-Operator": "  ada "}
    async with asking(steering) as client:
        await client.post("/controls", json=PAUSE | {"dry_run": True}, headers=headers)
    async with asking(steering, authority=Named()) as client:
        answer = await client.post("/controls", json=PAUSE, headers=headers | {"Authorization": "Bearer steer"})
        assert answer.json()["did"] == "paused"
        forged = headers | {"Authorization": "Bearer steer", "X-Headgate-Operator": "a\x1b[2J"}
        assert (await client.post("/controls", json=PAUSE, headers=forged)).status_code == 422
    order = {"verb": "pause", "model": "acme/small@main", "environment": None, "what": "", "value": None}
    order |= {"reason": "too slow", "revision": None}
    assert steering.orders == [(order, "ada (via local)", True), (order, "ada (via ops)", False)]


async def test_what_is_wrong_is_said(steering: Steering) -> None:
    async with asking(steering) as client:
        for body in ({}, {"verb": 3}, {"verb": "pause", "modle": "x"}, {"verb": "set", "value": "50"}):
            answer = await client.post("/controls", json=body)
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), body
        conflict = await client.post("/controls", json=PAUSE | {"revision": 0})
    assert conflict.status_code == 409
    assert conflict.json()["detail"] == "the control was changed meanwhile: paused of the whole run, by ops"
    assert conflict.json()["code"] == "control_changed"


async def test_a_status_carries_the_controls_for_who_asks_for_both(steering: Steering) -> None:
    async with asking(steering) as client:
        assert "controls" not in (await client.get("/status")).json()
        both = (await client.get("/status", params={"controls": "true"})).json()
        assert both["controls"] == (await client.get("/controls")).json()
    bare = monitor_app(status, new_registry(status))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(bare), base_url="http://127.0.0.1") as client:
        assert "controls" not in (await client.get("/status", params={"controls": "true"})).json()
