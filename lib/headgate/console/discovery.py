"""Watches every run that says in a journal where it is asked, and decides who may see the console's token there."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from socket import gethostname
from typing import Final
from urllib.parse import urlsplit

from headgate.config import Settings
from headgate.console.asking import CLOSED, RunSource
from headgate.console.sources import Asked, Source, Sources
from headgate.core.addresses import ip_address_of, is_metadata_host
from headgate.net.hosts import advertised_name, is_loopback
from headgate.storage import JournalPlace, RunDirectory, ServedRun
from headgate.telemetry import MonitorClient

MOST_RUNS: Final = 200
"""Of one journal; each is asked every few seconds."""

KEPT_S: Final = 12 * 3_600.0
"""A run that has ended is shown for a shift, unless its campaign runs again before."""

_HOST: Final = re.compile(r"[a-z0-9._:-]+")


class RefusedAddressError(ValueError):
    """The console does not ask at an address; the text says why."""


def address_to_ask(run: ServedRun, hosts: Sequence[str], here: str) -> str:
    """Return the URL at which a run is asked, with the console's token.

    Whoever can write a journal could otherwise have that token sent anywhere. What is allowed is loopback, for runs of
    this machine, and what the operator names; never an address where clouds hand out credentials.

    Args:
        run: as its journal tells it.
        hosts: setting `console_hosts`.
        here: name of this machine.

    Raises:
        RefusedAddressError: it is none of these.
    """
    try:
        parts = urlsplit(run.address)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        host, port = "", None
    host = str(ip_address_of(host) or host)
    shown = f"[{host}]" if ":" in host else host
    if not port or parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host) or is_metadata_host(host):
        raise RefusedAddressError("it names no host and port that a run can have")
    if parts.netloc.rpartition("@")[1] or parts.path.strip("/") or parts.query or parts.fragment:
        raise RefusedAddressError("an address has a host and a port, and nothing else")
    if any(_matches(pattern, host) for pattern in hosts) or (is_loopback(host) and run.machine == here):
        return f"{parts.scheme}://{shown}:{port}"
    if is_loopback(host):
        raise RefusedAddressError(f"it listens on loopback of {run.machine}; start it with monitor_host")
    if run.machine == here and host in {here.lower(), advertised_name()}:  # a name server may say anything of it
        return f"{parts.scheme}://127.0.0.1:{port}"
    raise RefusedAddressError(f"console_hosts does not name {host}")


def _matches(pattern: str, host: str) -> bool:
    return re.fullmatch("[^.:]*".join(map(re.escape, pattern.lower().split("*"))), host) is not None


class JournalSource(Source):
    """The journals at a place. Every run that says there where it is asked is a source of its own while it lives.

    Args:
        place: folder or database of journals.
        settings: the token, and the hosts that may see it.
        sources: to which runs are added, and from which they are taken again.
    """

    def __init__(self, place: JournalPlace, settings: Settings, sources: Sources) -> None:
        super().__init__("journal", str(place), self._state)
        self._place = place
        self._settings = settings
        self._sources = sources
        self._directory = RunDirectory(place)
        self._found: dict[ServedRun, RunSource] = {}
        self._alive_until: dict[ServedRun, float] = {}

    async def _state(self) -> Asked:
        asked_at = time.monotonic()
        told = await asyncio.to_thread(self._directory.runs)
        live = sorted((run for run, left_s in told.items() if left_s > 0), key=lambda run: -run.started_at)[:MOST_RUNS]
        refused = []
        for run in live:
            self._alive_until[run] = asked_at + told[run]
            try:
                await self._watch(run)
            except RefusedAddressError as error:
                refused.append({"campaign": run.campaign, "address": run.address, "why": str(error)})
        for run in set(self._found) - set(live):
            await self._follow_end(run, is_dead=run in told, live=live)
        return {"runs": len(live), "refused": refused}, {}, len(told)

    async def _watch(self, run: ServedRun) -> None:
        """Have a live run be watched, in place of an earlier one that had its address."""
        address = address_to_ask(run, self._settings.console_hosts, gethostname())
        if run in self._found:
            self._found[run].left = None
            return
        known = self._sources.get("run", address)
        earlier = next((one for one, source in self._found.items() if source is known), None)
        if known is not None and (earlier is None or earlier.started_at > run.started_at):
            return  # the operator named it, or it says so with the address of a later one
        if earlier is not None:
            await self._forget(earlier)
        monitor = await asyncio.to_thread(MonitorClient, self._settings, address, run.run_id)  # reads certificates
        source = self._found[run] = RunSource(monitor, self._place, run)
        self._sources.add(source)

    async def _follow_end(self, run: ServedRun, *, is_dead: bool, live: Sequence[ServedRun]) -> None:
        """Say of a run that lives no more how it ended, and forget it in time."""
        source = self._found[run]
        ended_at = source.down_since or time.time()
        if source.left is None:
            source.left = "" if is_dead else CLOSED
            source.ended_by = source.ended_by or source.left
            is_known = is_dead or self._alive_until[run] > time.monotonic()  # else it ended while nobody looked
        else:
            is_known = time.time() - ended_at < KEPT_S
        is_taken_up = any(one.campaign == run.campaign and one.started_at > ended_at for one in live)
        if is_taken_up or not is_known or source.seen_at is None:
            await self._forget(run)

    async def _forget(self, run: ServedRun) -> None:
        source = self._found.pop(run)
        del self._alive_until[run]
        self._sources.remove(source)
        await source.idle()
        await source.monitor.close()

    async def close(self) -> None:
        """Let go of the runs and of the database."""
        for run in list(self._found):
            await self._forget(run)
        await asyncio.to_thread(self._directory.close)
