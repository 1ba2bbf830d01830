"""Asks each kind of source for what the screens show, read-only."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import httpx

from headgate.console.sources import Asked, Source
from headgate.core.errors import ForbiddenError, HeadgateError, UnauthorizedError, some_of
from headgate.placement import Group, read_journal
from headgate.storage import Journal, JournalPlace, ServedRun, served_runs, told
from headgate.telemetry import MonitorClient

LEFT: Final = "it left its journal: it ended or was stopped, and its log says which"

_MOST_DEAD: Final = 100
_MOST_GROUPS: Final = 300
_MOST_SPELLS: Final = 60
_REFUSALS: Final = {401: UnauthorizedError, 403: ForbiddenError}
_ON_TOKENS: Final = "Start the console with a token of it: the setting jobqueue_token, or HEADGATE_ELASTIC_TOKEN."
_KEPT: Final = ("limit", "in_flight", "waiters", "answered", "rate_limited")


class RunSource(Source):
    """A campaign's run, by its monitoring API; once it has ended, the journals at `place` say whether it was killed.

    `run` is its entry in one of them, if it was found there. `samples` are the environments that it samples.
    """

    def __init__(self, monitor: MonitorClient, place: JournalPlace | None = None, run: ServedRun | None = None) -> None:
        super().__init__("run", monitor.address, self._status)
        self.monitor = monitor
        self.run = run
        self.place = place
        self.samples: frozenset[str] = frozenset()

    @property
    def environments(self) -> str:
        """Names of some of its environments, by which people distinguish the flow runs of one campaign."""
        return some_of(sorted(self.samples), 3 if len(self.samples) <= 3 else 2)

    @property
    def campaign(self) -> tuple[str, str]:
        """Name and place of its campaign, which other runs may have too."""
        return self.name, str(self.place)

    async def _status(self) -> Asked:
        try:
            said = await self.monitor.document("/status", {"controls": "true"})
        except httpx.ConnectError:
            if self.down_since is None and self.said:
                self.ended_by = await asyncio.to_thread(self._ending) or self.left or ""
            raise
        said.setdefault("controls", None)  # it cannot be steered
        self.samples = frozenset(str(pair["environment"]) for pair in said["pairs"])
        figures: dict[str, float | None] = {
            "samples per minute": said["workers"]["finished_last_minute"],
            "workers busy": said["workers"]["active"],
            "queue": said["queue"]["size"],
            "spooled": said["spooled"],
            "lag": max((pair["lag_s"] for pair in said["pairs"]), default=0.0),
        }
        figures |= {f"{key_of(key)} {what}": key.get(what) for key in said["requests"] for what in _KEPT}
        return said, figures, sum(len(said[name]) for name in ("pairs", "models", "requests"))

    def _ending(self) -> str:
        """Return who drained the run that answered last, or that it left its journal; empty if neither is known."""
        campaign = str(self.said.get("campaign", ""))
        if self.place is None or not campaign:
            return ""
        ended_by, started_at = "", self.said.get("started_at", math.inf)
        with suppress(HeadgateError, OSError):  # such as a read-only disk
            if not Journal.is_there(self.place, campaign):
                return ""
            if isinstance(self.place, Path):  # a database does not tell a run just killed from one that left
                # By its port: the console may know it by another host name than the journal.
                there = {(run.campaign, run.address.rpartition(":")[2]) for run in served_runs(self.place)[0]}
                ended_by = "" if (campaign, self.address.rpartition(":")[2]) in there else LEFT
            with closing(Journal(self.place, campaign)) as journal, journal.told():
                orders = [one for one in journal.controls.latest() if one.what == "drain"]
            ended_by = next((told(one) for one in orders if one.at >= started_at), ended_by)
        return ended_by


class ServiceSource(Source):
    """A job queue by its API, or an elastic pool by its gateway; `kind` says which."""

    def __init__(self, kind: str, address: str, client: httpx.AsyncClient) -> None:
        super().__init__(kind, address, self._queue if kind == "jobqueue" else self._pool)
        self.client = client

    async def _queue(self) -> Asked:
        said = await answered(self.client, "/v1/statistics")
        said["dead"] = (await answered(self.client, f"/v1/dead-jobs?limit={_MOST_DEAD}"))["jobs"]
        said["servers"] = (await answered(self.client, "/v1/resources"))["resources"]
        rows = sum(len(said[name]) for name in ("lanes", "dead", "servers"))
        return said, {f"jobs {state}": count for state, count in said["jobs"].items()}, rows

    async def _pool(self) -> Asked:
        said = await answered(self.client, "/elastic/v1/status")
        said["name"] = said["pool"]["name"]
        demand = said["pool"]["demand"]
        waiting = demand["waiting"] + said["admission"]["waiting"]
        figures = {"awake": demand["active"] + demand["starting"], "running": demand["running"], "waiting": waiting}
        return said, figures, 0


class PlacementSource(Source):
    """The placement ledger of a Ray cluster, by its journal; its times plus `offset` are wall times.

    Attributes:
        spells: the states seen of each group: start (wall time), state, and holder.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__("placement", str(journal), self._state)
        self._journal = journal
        self.spells: dict[str, deque[tuple[float, str, str]]] = {}

    async def _state(self) -> Asked:
        found, offset = await asyncio.to_thread(read_journal, self._journal)
        groups = found.groups[:_MOST_GROUPS]
        self.spells = {one.group_id: self.spells.get(one.group_id, deque(maxlen=_MOST_SPELLS)) for one in groups}
        for group in groups:
            spells, seen = self.spells[group.group_id], (group.state.value, group.holder or "")
            if not spells or spells[-1][1:] != seen:
                spells.append((group.since + offset, *seen))
        stages = Counter(one.stage.value for one in found.requests)
        figures = {"running": stages["running"], "waiting": stages["waiting"]}
        return {"requests": found.requests, "groups": groups, "offset": offset}, figures, 0

    def timeline(self) -> list[tuple[str, list[tuple[Group, list[dict[str, Any]]]]]]:
        """Return the groups by node, each with its spells of the last hour as shares of that hour."""
        now, by_node = time.time(), dict[str, list[tuple[Group, list[dict[str, Any]]]]]()
        for group in self.said.get("groups", ()):
            spells = list(self.spells[group.group_id])
            ends = [spell[0] for spell in spells[1:]] + [now]
            shown = [
                {"state": state, "holder": holder, "start": 1 - (now - max(since, now - 3600)) / 3600,
                 "width": max(0.002, (end - max(since, now - 3600)) / 3600)}
                for (since, state, holder), end in zip(spells, ends, strict=True)
                if end > now - 3600
            ]  # fmt: skip
            for node in dict.fromkeys(group.nodes or ("not placed",)):
                by_node.setdefault(node, []).append((group, shown))
        return sorted(by_node.items())


async def answered(client: httpx.AsyncClient, path: str, body: object = None) -> dict[str, Any]:
    """Return the document that a server answers to a GET, or to a POST of `body`.

    Raises:
        HeadgateError: it refuses, in its own words.
        httpx.HTTPError: it does not answer.
    """
    answer = await (client.get(path) if body is None else client.post(path, json=body))
    try:
        document = answer.json()
    except ValueError:
        document = None
    document = document if isinstance(document, dict) else {}
    if answer.is_success and document:
        return document
    said = f"{client.base_url} answered: {document.get('detail') or f'HTTP {answer.status_code}'}"
    if (kind := _REFUSALS.get(answer.status_code)) is not None:
        raise kind(said, next_step=_ON_TOKENS)
    raise HeadgateError(said, next_step=str(document.get("next_step") or ""))


def key_of(request: Mapping[str, Any]) -> str:
    """Return the name of a request key: its provider, model and domain."""
    return f"{request['provider']} {request['model']} {request['domain']}"
