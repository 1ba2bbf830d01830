"""A campaign whose tasks come from another server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from headgate.config import Settings
from headgate.core import Model
from headgate.models import serve
from headgate.run import run_campaign
from headgate.sampling import StaticRoster
from headgate.storage import open_store


async def test_a_campaign_runs_what_its_task_server_gives_once_each(tmp_path: Path) -> None:
    asked: list[str] = []

    async def tasks(request: web.Request) -> web.Response:
        asked.append(request.match_info["uid"])
        if len(asked) == 1:
            raise web.HTTPServiceUnavailable
        return web.json_response([{"env": "affine:sat-hard", "task_id": number} for number in (3, 7, 11)])

    app = web.Application()
    app.router.add_get("/tasks/{uid}", tasks)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    stop = asyncio.Event()
    async with serve() as endpoint:
        settings = Settings(
            environments=("affine:sat-hard",),
            store=str(tmp_path / "samples"),
            journal=tmp_path / "journal",
            task_provider=f"http://127.0.0.1:{port}/",
            task_provider_poll_s=0.05,
        )
        model = Model(
            "solver",
            uid=5,
            base_url=endpoint.base_url,
            served_name="baseline-solver",
            options=(("headgate_task_header", True),),
        )

        async def enough(status: object) -> None:
            if len(asked) > 5 and getattr(status, "samples", 0) >= 3:
                stop.set()

        result = await run_campaign(settings, roster=StaticRoster([model]), stop=stop, on_status=enough, every_s=0.05)
    await runner.cleanup()
    rows = (await open_store(settings.store).scan()).frame
    assert set(asked) == {"5"}
    assert sorted(rows["sequence"].to_list()) == [3, 7, 11]
    assert rows["score"].to_list() == [1.0, 1.0, 1.0]
    assert (result.open_tasks, result.spooled) == (0, 0)
