"""The page: what people see of a queue, as HTML and in a real browser."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.jobqueue.server import RunningServer
from headgate.jobqueue.server.page import Cell, heat_of, page_policy
from headgate.jobqueue.wire_servers import LaneOut
from headgate.net.tokens import Scope
from tests.jobqueue.server.conftest import JOB, SERVER, Queue

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = '<script>alert("x")</script>\x1b[31m'


def lane(team: str = "a", task: str = "t", **counts: Any) -> LaneOut:
    zero = {"pending": 0, "in_progress": 0, "done": 0, "dead": 0}
    return LaneOut(team=team, pool="", task=task, **{"is_served": True, **zero, **counts})


async def _one_dead_of_three(http: httpx.AsyncClient) -> None:
    jobs = [JOB | {"id": name, "max_attempts": 1} for name in ("1", "2", "3")]
    for path, body in (("/v1/resources", {"resources": [SERVER]}), ("/v1/jobs", {"jobs": jobs})):
        (await http.post(path, json=body)).raise_for_status()
    claimed = (await http.post("/v1/claims", json={"worker": "w", "count": 3})).json()["jobs"]
    first, second, third = [(one["job"]["id"], _lease(one)) for one in claimed]
    await http.post(f"/v1/jobs/{first[0]}/fail", json=first[1] | {"error": f"CUDA out of memory {HOSTILE}"})
    await http.post(f"/v1/jobs/{second[0]}/complete", json=second[1] | {"result": {"q_score": 1.0}})
    await http.post("/v1/reservations", json=third[1] | {"job_id": third[0]})


def _lease(one: dict[str, Any]) -> dict[str, Any]:
    return {"lease_id": one["lease"]["lease_id"], "epoch": one["lease"]["epoch"]}


def test_a_cell_adds_the_lanes_of_all_pools_of_a_team_and_task() -> None:
    heat = heat_of([lane(done=3, pending=1), lane(done=1, dead=1), lane(team="b")])
    assert heat["a"]["t"] == Cell(total=6, done=4, dead=1)
    assert heat["a"]["t"].shade == 6


def test_only_a_whole_cell_has_the_last_shade() -> None:
    assert heat_of([lane(done=999, pending=1)])["a"]["t"].shade == 9
    assert heat_of([lane(done=1000)])["a"]["t"].shade == 10


def test_a_lane_without_an_open_server_is_marked_only_while_jobs_wait_for_one() -> None:
    assert not heat_of([lane(pending=1, is_served=False)])["a"]["t"].is_served
    assert heat_of([lane(done=1, is_served=False)])["a"]["t"].is_served


async def test_the_page_of_an_empty_queue_says_what_to_do(queue: Queue) -> None:
    page = (await queue.http.get("/")).text
    assert "headgate jobqueue add" in page
    assert "No policy server is registered" in page


async def test_what_workers_send_is_shown_as_text(queue: Queue) -> None:
    await _one_dead_of_three(queue.http)
    page = (await queue.http.get("/")).text
    assert "<script" not in page
    assert "&lt;script&gt;" in page


async def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else(queue: Queue) -> None:
    answer = await queue.http.get("/")
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert answer.headers["Content-Security-Policy"] == page_policy()
    assert f"style-src 'sha256-{digest}'" in page_policy()
    assert "style=" not in answer.text


async def test_a_reader_sees_the_teams_of_his_token(queue: Queue) -> None:
    header = queue.token(Scope.READ, teams=["team_b"])
    everything = queue.token(Scope.ADMIN)
    await queue.submit(JOB, JOB | {"id": "18", "team": "team_b", "pool": "team_b"}, headers=everything)
    page = (await queue.http.get("/", headers=header)).text
    assert "team_b" in page
    assert "team_a" not in page


@pytest.mark.slow
async def test_a_browser_shows_counts_heat_map_servers_and_the_last_error(
    live: RunningServer, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium or Chrome on this machine")
    await _one_dead_of_three(client)
    picture = tmp_path / "page.png"
    dom = await _browsed(browser, live.url, tmp_path, "--dump-dom")
    await _browsed(browser, live.url, tmp_path, f"--screenshot={picture}")
    counts = dict(re.findall(r'id="jobs-(\w+)">([\d,]+)<', dom))
    assert counts == {"done": "1", "in_progress": "1", "pending": "0", "dead": "1"}
    assert re.search(r'title="team_a, radio: 1 of 3 done, 1 in progress, 1 dead">1/3 <b>1†</b>', dom)
    assert 'class="server open busy"' in dom
    assert "CUDA out of memory" in dom
    assert picture.stat().st_size > 10_000, "an empty page makes a small picture"


async def _browsed(browser: str, url: str, folder: Path, *options: str) -> str:
    process = await asyncio.create_subprocess_exec(
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1200,1000",
        f"--user-data-dir={folder / 'profile'}",
        *options,
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    return out.decode()
