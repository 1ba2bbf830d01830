"""A stand-in for the list of workers of an SGLang gateway, as smg 1.13 answers; it routes nothing.

`test_smg_gateway.py` runs the real one.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer


class FakeRouter:
    """Workers by id. A new one is pending for so many looks, then ready."""

    def __init__(self, *, key: str = "", looks: int = 1) -> None:
        self.key = key
        self.looks = looks
        self.workers: dict[str, dict[str, object]] = {}
        self.asked: list[dict[str, object]] = []
        self.url = ""

    @property
    def urls(self) -> list[str]:
        return [str(worker["url"]) for worker in self.workers.values() if worker["status"] == "ready"]

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/workers", self._list)
        app.router.add_post("/workers", self._add)
        app.router.add_delete("/workers/{worker_id}", self._remove)
        return app

    async def _list(self, http: web.Request) -> web.Response:
        if self.key and http.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        for worker in self.workers.values():
            worker["looks"] = int(str(worker["looks"])) - 1
            if int(str(worker["looks"])) < 0:
                worker["status"] = "ready"
        return web.json_response({"workers": list(self.workers.values()), "total": len(self.workers), "stats": {}})

    async def _add(self, http: web.Request) -> web.Response:
        asked = orjson.loads(await http.read())
        self.asked.append(asked)
        if any(worker["url"] == asked["url"] for worker in self.workers.values()):
            return web.json_response({"error": "Worker already exists", "code": "WORKER_ALREADY_EXISTS"}, status=409)
        worker_id = str(uuid.uuid4())
        self.workers[worker_id] = {"id": worker_id, "url": asked["url"], "status": "pending", "looks": self.looks}
        return web.json_response({"status": "accepted", "worker_id": worker_id, "url": asked["url"]}, status=202)

    async def _remove(self, http: web.Request) -> web.Response:
        if self.workers.pop(http.match_info["worker_id"], None) is None:
            return web.json_response({"error": "not found", "code": "WORKER_NOT_FOUND"}, status=404)
        return web.json_response({"status": "accepted"}, status=202)


@asynccontextmanager
async def serve_router(*, key: str = "", looks: int = 1) -> AsyncIterator[FakeRouter]:
    """Give a running one."""
    router = FakeRouter(key=key, looks=looks)
    async with TestServer(router.application()) as server:
        router.url = str(server.make_url("")).rstrip("/")
        yield router
