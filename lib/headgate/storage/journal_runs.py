"""Which runs of a journal serve a monitoring API, and where: each says so among the holders of its journal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from headgate.core.ids import MAX_NAME_CHARS
from headgate.durable.databases import PostgresAddress
from headgate.durable.locks import lock_of
from headgate.storage.journal_database import JournalPlace

if TYPE_CHECKING:
    from headgate.storage.journal_postgres import Announcements

_Text = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


@dataclass(frozen=True, slots=True)
class ServedRun:
    """What a run says of itself; whoever writes the journal can say anything.

    Attributes:
        campaign: its name.
        run_id: what the monitoring API answers to.
        address: URL of the monitoring API, under a host that other machines reach where it listens for them.
        machine: name of the host that it runs on.
        started_at: when it started (wall time).
    """

    campaign: _Text
    run_id: _Text
    address: _Text
    machine: _Text
    started_at: Annotated[float, Field(allow_inf_nan=False)]

    def words(self) -> str:
        """Return it as it stands among the holders."""
        return _RUN.dump_json(self).decode()


_RUN: Final = TypeAdapter(ServedRun)


class RunDirectory:
    """Finds the runs of all campaigns whose journals are at a place. It joins no journal and writes nothing.

    Used from one thread at a time; `close` ends its connection.
    """

    def __init__(self, place: JournalPlace) -> None:
        self._place = place
        self._database: Announcements | None = None

    def runs(self) -> dict[ServedRun, float]:
        """Return each run that said where it is asked, and for how many more seconds it counts as alive.

        They are infinite on one machine, where a process that ends is known at once, and 0 or less for one that died.

        Raises:
            JournalError: if the database does not answer.
            OSError: if a folder cannot be read.
        """
        found: dict[ServedRun, float] = {}
        for said, lease_s in self._announced():
            try:
                found[_RUN.validate_json(said)] = lease_s
            except ValidationError:  # another version's, or half written: the next look finds it
                continue
        return found

    def _announced(self) -> Iterator[tuple[str, float]]:
        if isinstance(self._place, PostgresAddress):
            if self._database is None:
                from headgate.storage.journal_postgres import Announcements  # noqa: PLC0415 - of an optional extra

                self._database = Announcements(self._place)
            yield from self._database.read()
        elif self._place.is_dir():
            for holder in (file for campaign in self._place.iterdir() for file in Path(campaign, "holders").glob("*")):
                is_alive, said = lock_of(holder)
                yield said, math.inf if is_alive else 0.0

    def close(self) -> None:
        """End the connection to the database, where there is one."""
        if self._database is not None:
            self._database.close()
