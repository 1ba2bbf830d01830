"""Watches every run that says in a journal where it is asked, and decides who may see the console's token there."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from socket import gethostname
from typing import Final

from headgate.config import Settings
from headgate.console.asking import LEFT, RunSource
from headgate.console.sources import Asked, Source, Sources
from headgate.core.addresses import ip_address_of, is_metadata_host
from headgate.core.errors import InvalidInputError
from headgate.net.hosts import advertised_name, is_loopback
from headgate.storage import JournalPlace, ServedRun, served_runs
from headgate.telemetry import MonitorClient

MOST_RUNS: Final = 200
"""Of one journal; each is asked every few seconds."""

KEPT_S: Final = 12 * 3_600.0
"""A run that has ended is shown for a shift, unless its campaign runs again before."""

_ADDRESS: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9_-][a-z0-9._-]*):([0-9]{1,5})/?")


def address_to_ask(run: ServedRun, hosts: Sequence[str], here: str) -> str:
    """Return the URL at which a run is asked, with the console's token.

    Whoever can write a journal could otherwise have that token sent anywhere. It goes to loopback, for runs of this
    machine, which is called `here`, and to `hosts`; never to an address where clouds hand out credentials.

    Raises:
        InvalidInputError: it is none of these.
    """
    found = _ADDRESS.fullmatch(run.address.lower())
    host = found[2].strip("[]").rstrip(".") if found is not None else ""
    host = str(ip_address_of(host) or host)
    if found is None or not 0 < int(found[3]) < 65_536 or is_metadata_host(host):
        raise InvalidInputError("it is no http://HOST:PORT that a run can have")
    if is_loopback(host):
        if run.machine != here:
            raise InvalidInputError(f"it listens on loopback of {run.machine}; start it with monitor_host")
    elif not any(re.fullmatch("[^.:]*".join(map(re.escape, one.lower().split("*"))), host) for one in hosts):
        if run.machine != here or host not in {here.lower(), advertised_name()}:
            raise InvalidInputError(f"console_hosts does not name {host}")
        host = "127.0.0.1"  # a name server may say anything of this machine's name
    return f"{found[1]}://{f'[{host}]' if ':' in host else host}:{found[3]}"


class JournalSource(Source):
    """The journals at a place: every run that says there where it is asked is one of `sources` while it lives."""

    def __init__(self, place: JournalPlace, settings: Settings, sources: Sources) -> None:
        super().__init__("journal", str(place), self._state)
        self._place = place
        self._settings = settings
        self._hosts = (*settings.console_hosts, settings.monitor_host, settings.monitor_advertised_host)
        self._sources = sources

    def _found(self) -> dict[ServedRun, RunSource]:
        runs = [source for source in self._sources.of("run") if isinstance(source, RunSource)]
        return {source.run: source for source in runs if source.run is not None and source.place is self._place}

    async def _state(self) -> Asked:
        told = await asyncio.to_thread(served_runs, self._place)
        live = sorted((run for run, is_alive in told.items() if is_alive), key=lambda run: -run.started_at)[:MOST_RUNS]
        found, refused = self._found(), []
        for run in live:
            source = found.pop(run, None)
            try:
                if source is None:
                    await self._watch(run, address_to_ask(run, self._hosts, gethostname()))
                elif source.left is not None:  # a database that was away took it for dead
                    source.left, source.ended_by = None, ""
            except InvalidInputError as error:
                refused.append({"campaign": run.campaign, "address": run.address, "why": error.message})
        for run, source in found.items():
            await self._follow_end(run, source, live, has_died=run in told)
        return {"runs": len(live), "refused": refused}, {}, len(told)

    async def _watch(self, run: ServedRun, address: str) -> None:
        """Have a live run be watched, in place of an earlier one that had its address."""
        known = self._sources.get("run", address)
        if isinstance(known, RunSource) and (known.run is None or known.run.started_at >= run.started_at):
            return  # the operator named it, or it or a later one is found in another journal
        monitor = await asyncio.to_thread(MonitorClient, self._settings, address, run.run_id)  # reads certificates
        if self._sources.get("run", address) is not known:
            await monitor.close()  # another journal has found one meanwhile
            return
        self._sources.add(RunSource(monitor, self._place, run))
        if isinstance(known, RunSource):
            await self._forget(known)

    async def _follow_end(
        self, run: ServedRun, source: RunSource, live: Sequence[ServedRun], *, has_died: bool
    ) -> None:
        """Say of a run that lives no more how it ended, and forget it in time."""
        ended_at = source.down_since or time.time()
        if source.left is None:
            source.left = "" if has_died else LEFT
            source.ended_by = source.ended_by or source.left
        is_old = source.seen_at is None or time.time() - ended_at > KEPT_S
        if is_old or any(one.campaign == run.campaign and one.started_at > ended_at for one in live):
            await self._forget(source)

    async def _forget(self, source: RunSource) -> None:
        await self._sources.remove(source)
        await source.monitor.close()

    async def close(self) -> None:
        """Let go of the runs."""
        for source in self._found().values():
            await self._forget(source)
