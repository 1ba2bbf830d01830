"""Which runs of a journal serve a monitoring API, and where: each says so among the holders of its journal."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from headgate.core.ids import MAX_NAME_CHARS
from headgate.durable.databases import PostgresAddress
from headgate.durable.locks import lock_of
from headgate.storage.journal_database import JournalPlace

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


def served_runs(place: JournalPlace) -> dict[ServedRun, bool]:
    """Return each run that says where it is asked, of all campaigns whose journals are at a place; none is opened.

    For each it says whether it lives: one that died is there until another process buries it.

    Raises:
        JournalError: if the database does not answer.
        OSError: if a folder cannot be read.
    """
    found: dict[ServedRun, bool] = {}
    for is_alive, said in _announced(place):
        with suppress(ValidationError):  # another version's, or half written: the next look finds it
            found[_RUN.validate_json(said)] = is_alive
    return found


def _announced(place: JournalPlace) -> Iterable[tuple[bool, str]]:
    if isinstance(place, PostgresAddress):
        from headgate.storage.journal_postgres import announced  # noqa: PLC0415 - of an optional extra

        return announced(place)
    campaigns = place.iterdir() if place.is_dir() else ()
    return (lock_of(holder) for campaign in campaigns for holder in Path(campaign, "holders").glob("*"))
