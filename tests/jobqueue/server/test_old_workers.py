"""Workers of the seed, unchanged, against a server that really listens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from headgate.jobqueue.server import RunningServer, ServerSettings, running_server
from headgate.net.token_stores import open_tokens
from headgate.net.tokens import Scope, new_token
from tests.jobqueue.server.conftest import JOB, SERVER, bearer, in_line
from tests.jobqueue.server.old_worker import OldWorker

_JOBS = 12


async def _fill(url: str, headers: dict[str, str] | None = None) -> None:
    async with httpx.AsyncClient(base_url=url, headers=headers) as http:
        servers = [{**SERVER, "port": 8080 + number} for number in range(2)]
        (await http.post("/v1/resources", json={"resources": servers})).raise_for_status()
        jobs = [{**JOB, "id": str(number), "resource_type": "team_a_1"} for number in range(_JOBS)]
        (await http.post("/v1/jobs", json={"jobs": jobs})).raise_for_status()


def _work(url: str, workers: int) -> list[OldWorker]:
    """Run workers side by side, each again and again until there is no job, as `eval.sh` does."""

    def endless(number: int) -> list[OldWorker]:
        runs: list[OldWorker] = []
        while True:
            runs.append(OldWorker(url, f"user-{number}-{len(runs)}"))
            if runs[-1].run() is None:
                return runs

    with ThreadPoolExecutor(workers) as pool:
        return [run for runs in pool.map(endless, range(workers)) for run in runs]


@pytest.mark.parametrize("wait_s", [0.0, 50.0])
async def test_every_job_is_done_once(live_settings: ServerSettings, wait_s: float) -> None:
    async with running_server(live_settings.model_copy(update={"legacy_acquire_wait_s": wait_s})) as server:
        await _fill(server.url)
        workers = await asyncio.to_thread(_work, server.url, 5)
        assert Counter(job for run in workers for job, _ in run.served) == Counter(map(str, range(_JOBS)))
        assert {port for run in workers for _, port in run.served} == {8080, 8081}
        async with httpx.AsyncClient(base_url=server.url) as http:
            told = (await http.get("/v1/statistics")).json()
            assert (told["jobs"]["done"], told["pools"][0]["free"], told["workers"]) == (_JOBS, 2, 0)
    refusals = {error for run in workers for error in run.errors}
    assert refusals <= {'{"detail":"No resources available"}'}
    if wait_s:
        assert not refusals


async def test_a_token_in_the_url_is_all_that_an_old_worker_needs(live_settings: ServerSettings) -> None:
    tokens = open_tokens(live_settings.database)
    admin, admin_text = new_token("admin", [Scope.ADMIN], now=time.time())
    worker, worker_text = new_token("workers", [Scope.LEGACY], now=time.time())
    async with running_server(live_settings) as server:
        for token in (admin, worker):
            tokens.add(token, forget_before=0)
        tokens.close()
        await _fill(server.url, bearer(admin_text))
        url = server.url.replace("http://", f"http://worker:{worker_text.reveal()}@")
        workers = await asyncio.to_thread(_work, url, 3)
        assert len([1 for run in workers if run.served]) == _JOBS
        async with httpx.AsyncClient(base_url=server.url) as http:
            assert (await http.get("/job", params={"worker": "w"})).status_code == 401


async def test_a_restart_between_job_and_done_loses_nothing(live_settings: ServerSettings) -> None:
    def params(**more: object) -> dict[str, object]:
        return {"worker": "w", **more}

    async with running_server(live_settings) as server:
        await _fill(server.url)
        async with httpx.AsyncClient(base_url=server.url) as http:
            job = (await http.get("/job", params=params())).json()["job"]
            got = (await http.post("/resource/team_a_1/acquire", params=params(job_id=job["id"]))).json()
    async with running_server(live_settings) as server, httpx.AsyncClient(base_url=server.url) as http:
        again = (await http.post("/resource/team_a_1/acquire", params=params(job_id=job["id"]))).json()
        assert again == got
        assert (await http.post("/heartbeat", params=params())).json()["total_resources_heartbeated"] == 1
        assert (await http.post(f"/done/{job['id']}", params=params())).json() == {"status": "ok"}
        named = params(job_id=job["id"], resource_idx=got["index"])
        assert (await http.post("/resource/team_a_1/release", params=named)).json() == {"status": "ok"}


async def test_an_old_worker_that_hangs_up_while_it_waits_leaves_the_line(live: RunningServer) -> None:
    await _fill(live.url)
    writer = live.service.writer
    async with httpx.AsyncClient(base_url=live.url) as http:
        held = []
        for worker in ("a", "b", "c"):
            job = (await http.get("/job", params={"worker": worker})).json()["job"]["id"]
            held.append({"worker": worker, "job_id": job})
        for named in held[:2]:
            assert (await http.post("/resource/team_a_1/acquire", params=named)).status_code == 200
        waiting = asyncio.create_task(http.post("/resource/team_a_1/acquire", params=held[2]))
        await in_line(writer, servers=1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await in_line(writer)
