"""What a web page can make a browser do: change nothing on any server, and read nothing by a name of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from headgate.core.errors import CrossSiteError, MisdirectedError
from headgate.net.hosts import HostNames, check_site
from tests.net.servers import CHANGES, SERVERS

BROWSER = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"


@pytest.fixture(params=SERVERS)
async def http(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    async with SERVERS[request.param](tmp_path) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        yield client, CHANGES[request.param]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"User-Agent": BROWSER, "Authorization": "Basic dTpw"},
    ],
    ids=lambda headers: " ".join(f"{name}={value[:20]}" for name, value in headers.items()),
)
async def test_a_page_of_another_site_changes_nothing(
    http: tuple[httpx.AsyncClient, str], headers: dict[str, str]
) -> None:
    client, path = http
    answer = await client.post(path, json={"worker": "w"}, headers=headers)
    assert answer.status_code == 403
    assert "page of another site" in answer.text or "remembers" in answer.text


async def test_a_page_of_the_server_itself_and_a_program_are_not_in_the_way(
    http: tuple[httpx.AsyncClient, str],
) -> None:
    client, path = http
    own = f"http://{client.base_url.netloc.decode()}"
    for headers in ({}, {"Origin": own, "Sec-Fetch-Site": "same-origin", "User-Agent": BROWSER}):
        answer = await client.post(path, json={"worker": "w"}, headers=headers)
        assert answer.status_code != 403


async def test_a_name_that_somebody_points_here_is_not_answered(http: tuple[httpx.AsyncClient, str]) -> None:
    client, path = http
    headers = {"Host": "rebound.example:8000", "Origin": "http://rebound.example:8000"}
    assert (await client.post(path, json={"worker": "w"}, headers=headers)).status_code == 421


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost", "[::1]:9", "10.1.2.3:80", "queue:8000", "node.example"]
)
def test_a_server_answers_to_addresses_and_to_names_that_no_page_can_have(host: str) -> None:
    HostNames("node.example").check(host)


@pytest.mark.parametrize("host", [None, "", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[::1"])
def test_a_server_answers_to_no_other_name(host: str | None) -> None:
    with pytest.raises(MisdirectedError):
        HostNames("node.example").check(host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://queue.example", "queue.example"),
        ("https://queue.example:443", "queue.example"),
        ("http://queue.example:8000", "queue.example:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_an_origin_is_ones_own_with_its_port(origin: str, host: str) -> None:
    headers = {"origin": origin, "host": host}
    check_site(headers.get, "POST")
    with pytest.raises(CrossSiteError):
        check_site({**headers, "host": "other.example"}.get, "GET")


def test_a_link_on_another_page_may_be_followed() -> None:
    check_site({"sec-fetch-site": "cross-site", "host": "queue.example"}.get, "GET")
