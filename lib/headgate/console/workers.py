"""Workers: the lanes and dead jobs of queues, the workers of elastic pools, placement's nodes over time."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from fastapi import FastAPI
from starlette.datastructures import QueryParams

from headgate.console.listing import page_of
from headgate.console.pages import Console
from headgate.console.sources import Sources

LANES: Final = 30
DEAD: Final = 25
SERVERS: Final = 60


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""
    console.add_live(app, "/workers", partial(_values, console.sources))


def _values(sources: Sources, query: QueryParams) -> dict[str, Any]:
    wanted = query.get("find", "").lower()
    queues = []
    for queue in sources.of("jobqueue"):
        said = queue.said
        lanes = [
            lane for lane in said.get("lanes", ())
            if wanted in f"{lane['team']} {lane['task']} {lane['pool']}".lower()
        ]  # fmt: skip
        lanes.sort(key=lambda lane: (lane["is_served"] or not lane["pending"], -lane["dead"], -lane["pending"]))
        dead = [job for job in said.get("dead", ()) if wanted in f"{job['id']} {job['team']} {job['task']}".lower()]
        servers = sorted(said.get("servers", ()), key=lambda one: (one["state"] == "open", one["resource_id"]))
        parts = page_of(lanes, query, LANES), page_of(dead, query, DEAD, name="dead"), servers[:SERVERS]
        queues.append((queue, *parts))
    return {"queues": queues, "pools": sources.of("elastic"), "placements": sources.of("placement")}
