"""Which runs of a journal serve a monitoring API, and where: each says so among the holders of its journal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headgate.durable.databases import PostgresAddress
from headgate.durable.locks import lock_of
from headgate.storage.journal_database import JournalPlace


class ServedRun(NamedTuple):
    """What a run says of itself; whoever can write the journal can say anything.

    Attributes:
        campaign: its name.
        run_id: what its monitoring API answers to.
        address: URL of that, for other machines where it listens for any.
        machine: name of the host that it runs on.
        started_at: wall time.
    """

    campaign: str
    run_id: str
    address: str
    machine: str
    started_at: float


def served_runs(place: JournalPlace) -> dict[ServedRun, bool]:
    """Return each run that says where it is asked, of all campaigns whose journals are at a place; none is opened.

    For each it says whether it lives: one that died is there until another process buries it.

    Raises:
        JournalError: if the database does not answer.
        OSError: if a folder cannot be read.
    """
    found: dict[ServedRun, bool] = {}
    for is_alive, said in _announced(place):
        with suppress(ValueError, RecursionError):  # another version's, or half written: the next look finds it
            match json.loads(said):
                case [str(), str(), str(), str(), float(at)] as told if math.isfinite(at):
                    "".join(told[:4]).encode()  # no page could show half of a character
                    found[ServedRun(*told)] = is_alive
    return found


def _announced(place: JournalPlace) -> Iterable[tuple[bool, str]]:
    if isinstance(place, PostgresAddress):
        from headgate.storage.journal_postgres import announced  # noqa: PLC0415 - of an optional extra

        return announced(place)
    campaigns = place.iterdir() if place.is_dir() else ()
    return (lock_of(holder) for campaign in campaigns for holder in Path(campaign, "holders").glob("*"))
