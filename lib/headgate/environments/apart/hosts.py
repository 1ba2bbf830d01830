"""All processes of environments that this process has: found by package and limits, and ended when it ends."""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import Final

from headgate.environments.apart.host import Host
from headgate.environments.apart.limits import ApartLimits, Source
from headgate.environments.apart.process import Child

_END_S: Final = 5.0
"""For processes to end by themselves where a campaign waits for them."""

_EXIT_S: Final = 1.0
"""Likewise when this process ends: nobody waits longer for a prompt."""


class Hosts:
    """The hosts of this process, one for each source and limits. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the map
        self._hosts: dict[tuple[Source, ApartLimits], Host] = {}

    def of(self, source: Source, limits: ApartLimits) -> Host:
        """Return the host of `source` under `limits`, the same for every caller; starts no process."""
        with self._lock:
            if (source, limits) not in self._hosts:
                self._hosts[source, limits] = Host(source, limits)
            return self._hosts[source, limits]

    def end_idle(self, within_s: float = _END_S) -> None:
        """End the processes in which no episode is open, and wait for them; then kill them."""
        with self._lock:
            hosts = tuple(self._hosts.values())
        _see_off(tuple(child for host in hosts for child in host.end_idle()), within_s)

    def end_all(self) -> None:
        """End every process, episodes or not: this process ends."""
        with self._lock:
            hosts = tuple(self._hosts.values())
        children = tuple(child for host in hosts for child in host.children())
        for child in children:
            child.end()
        _see_off(children, _EXIT_S)

    def abandon(self) -> None:
        """Let go of all processes: they are another process's, of which this one is a fork."""
        self._lock = threading.Lock()
        for host in self._hosts.values():
            host.abandon()


def end_idle_processes() -> None:
    """End the processes of environments in which no episode is open; the next episode starts one again."""
    HOSTS.end_idle()


def _see_off(children: tuple[Child, ...], within_s: float) -> None:
    until = time.monotonic() + within_s
    for child in children:
        if not child.wait(max(0.0, until - time.monotonic())):
            child.kill()
    for child in children:
        child.wait(1.0)


HOSTS: Final = Hosts()
"""The hosts of this process."""

atexit.register(HOSTS.end_all)
os.register_at_fork(after_in_child=HOSTS.abandon)
