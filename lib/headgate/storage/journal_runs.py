"""Which runs of a journal serve a monitoring API, at which address, and which of these may be called."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from typing import Final, NamedTuple

from headgate.config import Settings
from headgate.core.addresses import ip_address_of, is_metadata_host
from headgate.core.errors import InvalidInputError
from headgate.durable.databases import PostgresAddress
from headgate.durable.locks import LOST, LOST_S, lock_of
from headgate.net.hosts import advertised_name, is_loopback
from headgate.storage.journal_database import JournalPlace

MOST_RUNS: Final = 200
"""Maximum number of runs of one journal; the console calls each every few seconds."""

_KEPT_CHARS: Final = 1_000
"""Maximum characters of a holder's text, in the lock's file and in the database."""

_ADDRESS: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9_-][a-z0-9._-]*):([0-9]{1,5})/?")


class ServedRun(NamedTuple):
    """What a run publishes about itself; anyone who can write the journal can publish anything.

    Attributes:
        campaign: the campaign's name.
        run_id: the id that its monitoring API answers to.
        address: URL of that API, reachable from other machines if it listens for any.
        machine: name of its host.
        started_at: wall time.
        environments: the environments that it samples; empty if it has not named them, or they are too many to store.
    """

    campaign: str
    run_id: str
    address: str
    machine: str
    started_at: float
    environments: tuple[str, ...] = ()

    def said(self) -> str:
        """Return the text that a journal stores."""
        said = json.dumps([*self[:5], *self.environments])
        return said if len(said) <= _KEPT_CHARS else json.dumps(self[:5])


def served_runs(place: JournalPlace) -> tuple[dict[ServedRun, float], dict[Path, str]]:
    """Return the runs that publish an address, of all campaigns with a journal at a place; no journal is opened.

    Each comes with the wall time when it was last heard of, or found dead: infinity while it lives. A dead run is
    listed for `LOST_S`. The second value: what cannot be read of a folder, and why; it may hold more runs.

    Raises:
        JournalError: if the database does not answer.
        OSError: if the folder itself cannot be read.
    """
    found, unreadable, kept_since = dict[ServedRun, float](), dict[Path, str](), time.time() - LOST_S
    for died_at, said in _announced(place, unreadable):
        # Written by another version, or half written: the next look finds it.
        with suppress(ValueError, TypeError, RecursionError):
            match json.loads(said):
                case [str(a), str(b), str(c), str(d), float(at), *names] if math.isfinite(at) and died_at > kept_since:
                    "".join([a, b, c, d, *names]).encode()  # no page could show an unpaired surrogate
                    found[ServedRun(a, b, c, d, at, tuple(names))] = died_at
    return found, unreadable


def address_to_ask(run: ServedRun, hosts: Sequence[str], here: str) -> str:
    """Return the URL at which to call a run, with `monitor_token`.

    The token goes only to loopback, for runs on this machine, whose name is `here`, and to `hosts`, since anyone who
    can write a journal chooses its addresses; never to an address where clouds hand out credentials.

    Raises:
        InvalidInputError: it is none of these.
    """
    found = _ADDRESS.fullmatch(run.address.lower())
    host = found[2].strip("[]").rstrip(".") if found is not None else ""
    host = str(ip_address_of(host) or host)
    if found is None or not 0 < int(found[3]) < 65_536 or is_metadata_host(host):
        raise InvalidInputError("it is not an http://HOST:PORT that a run can have")
    if is_loopback(host):
        if run.machine != here:
            raise InvalidInputError(f"it listens on loopback of {run.machine}; start it with monitor_host")
    elif not any(re.fullmatch("[^.:]*".join(map(re.escape, one.lower().split("*"))), host) for one in hosts):
        if run.machine != here or host not in {here.lower(), advertised_name()}:
            raise InvalidInputError(f"console_hosts does not name {host}")
        host = "127.0.0.1"  # a name server may resolve this machine's name to anything
    return f"{found[1]}://{f'[{host}]' if ':' in host else host}:{found[3]}"


def runs_to_ask(
    told: Mapping[ServedRun, float], settings: Settings
) -> tuple[dict[ServedRun, str], dict[ServedRun, str]]:
    """Return the URL of each live run, newest first, and why for each run that must not be called.

    Args:
        told: the runs of a journal, with the time when each was found dead; see `served_runs`.
        settings: name the hosts that may receive `monitor_token`: `console_hosts` and the monitoring API's hosts.
    """
    hosts = (*settings.console_hosts, settings.monitor_host, settings.monitor_advertised_host)
    asked, refused = dict[ServedRun, str](), dict[ServedRun, str]()
    live = (run for run, died_at in told.items() if died_at == math.inf)
    for run in sorted(live, key=lambda run: -run.started_at)[:MOST_RUNS]:
        try:
            asked[run] = address_to_ask(run, hosts, gethostname())
        except InvalidInputError as error:
            refused[run] = error.message
    return asked, refused


def _announced(place: JournalPlace, unreadable: dict[Path, str]) -> Iterator[tuple[float, str]]:
    if isinstance(place, PostgresAddress):
        from headgate.storage.journal_postgres import announced  # noqa: PLC0415 - in an optional extra

        yield from announced(place)
        return
    for folder in [campaign / "holders" for campaign in place.iterdir()] if place.is_dir() else ():
        with _unreadable_in(unreadable, folder):
            for holder in sorted(folder.iterdir()):
                with _unreadable_in(unreadable, holder):
                    is_held, said = lock_of(holder)
                    died_at = holder.stat().st_mtime if holder.suffix == LOST else time.time()
                    yield math.inf if is_held else died_at, said


@contextmanager
def _unreadable_in(unreadable: dict[Path, str], path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):  # not a journal, or no process has it open
        pass
    except OSError as error:
        unreadable[path] = error.strerror or type(error).__name__
