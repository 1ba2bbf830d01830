"""The calls of Prefect's API that the slot broker and `headgate limits` make, and the meaning of their answers.

On SQLite a server handles some of them only one at a time, so a lock serialises the processes of one machine.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal
from uuid import UUID

import httpx
from prefect import settings as prefect_settings
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectException
from prefect.settings import get_current_settings

from headgate.admission.bank import LimitSeen, Peer
from headgate.core import errors
from headgate.core.audit import record_change
from headgate.durable.files import private_folder
from headgate.durable.locks import FileLock

REGISTER_PREFIX: Final = "headgate_slots_"
"""Prefix of the register's variables."""

BEATS_PER_LEASE: Final = 2
"""Entries are rewritten at least this often per lease length."""

_STALE: Final = 1.25
"""An entry older than this many lease lengths belongs to a process whose leases have expired, too."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A process's relation to one limit: slots it holds under leases, slots it wants, and its number of leases."""

    held: int
    wanted: int
    leases: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A process in the register.

    Attributes:
        name: unique; the end of its variable's name.
        process: host and process id, for people.
        age_s: seconds since its last write, by the server's clock.
    """

    name: str
    process: str
    lease_s: float
    age_s: float
    holdings: Mapping[str, Holding]

    @property
    def is_stale(self) -> bool:
        """Whether its last write is so old that its leases have expired, too."""
        return self.age_s > _STALE * self.lease_s


def entry(process: str, lease_s: float, holdings: Mapping[str, Holding]) -> dict[str, Any]:
    """Return the value for a process's variable."""
    return {
        "process": process,
        "lease_s": lease_s,
        "limits": {name: [h.held, h.wanted, h.leases] for name, h in sorted(holdings.items()) if h.held or h.wanted},
    }


def holder_of(variable: Mapping[str, Any], now: datetime) -> Holder | None:
    """Return the holder that a variable describes, or None if the variable cannot be read as one."""
    try:
        value = variable["value"]
        updated = datetime.fromisoformat(str(variable["updated"]))
        return Holder(
            name=str(variable["name"]).removeprefix(REGISTER_PREFIX),
            process=str(value["process"]),
            lease_s=float(value["lease_s"]),
            age_s=(now - updated).total_seconds(),
            holdings={str(name): Holding(*map(int, numbers)) for name, numbers in value["limits"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        # It has the register's prefix but another form, as of another version: no reason to stop admitting.
        return None


def peers_at(limit: str, holders: Iterable[Holder]) -> list[Peer]:
    """Return the living processes at a limit, as the bank expects them."""
    return [
        Peer(holder.name, holder.holdings[limit].held, holder.holdings[limit].wanted)
        for holder in holders
        if limit in holder.holdings and not holder.is_stale
    ]


def known_slots(limit: str, holders: Iterable[Holder]) -> int:
    """Return the slots under leases of living processes at a limit."""
    return sum(peer.held for peer in peers_at(limit, holders))


_Listing = Literal["/v2/concurrency_limits/filter", "/variables/filter"]

_CALL_S: Final = 10.0
_PAGE: Final = 200
_BUSY: Final = frozenset({408, 429, 503})
_MEANT: Final = frozenset({404, 409, 410, 422, 423})
"""Statuses that answer the request, rather than report a problem of the server."""


class MachineLock:
    """A lock per API address, held by one process of this machine at a time; a process that dies releases it.

    A holder waits for nothing but one answer of the API, so it is held for milliseconds. Within a process, one task
    uses it at a time.
    """

    def __init__(self, api_url: str) -> None:
        self._name = f"{hashlib.blake2b(api_url.encode(), digest_size=8).hexdigest()}.lock"
        self._turn = asyncio.Lock()
        self._lock: FileLock | None = None

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        try:
            lock = FileLock(private_folder("slots") / self._name)
            waiting = asyncio.get_running_loop().run_in_executor(None, lambda: lock.take(waits=True))
            try:
                await asyncio.shield(waiting)
            except BaseException:
                # The thread keeps waiting; the lock is given back as soon as it gets it.
                waiting.add_done_callback(lambda _: lock.give_back())
                raise
        except BaseException:
            self._turn.release()
            raise
        self._lock = lock

    async def __aexit__(self, *_: object) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.give_back()
        self._turn.release()


class SlotServiceBusyError(errors.OrchestratorUnreachableError):
    """The Prefect API reports that it is busy: a server on SQLite allows one writer at a time."""

    code = "orchestrator_busy"
    next_step = "Run the command again; a server on PostgreSQL allows many at a time."


@dataclass(frozen=True, slots=True)
class NoSlots:
    """A limit has no slots left; `retry_after_s` is what the server suggests."""

    retry_after_s: float | None


class SlotService:
    """One client of the Prefect API. Calls that write take turns with the machine's other processes."""

    def __init__(self, client: PrefectClient) -> None:
        self._client = client
        self._lock = MachineLock(str(client.api_url))

    async def limit(self, name: str) -> LimitSeen | None:
        """Return a limit as it is now, or None if it does not exist."""
        where = {"id_or_name": name}
        answer = await _answer(self._client.request("GET", "/v2/concurrency_limits/{id_or_name}", path_params=where))
        return None if answer.status_code == httpx.codes.NOT_FOUND else _seen(answer.json())

    async def limits(self) -> list[tuple[str, LimitSeen]]:
        """Return every limit of the server by name, except those that Prefect keeps for deployments and tags."""
        rows, _ = await self._listed("/v2/concurrency_limits/filter")
        return [(row["name"], _seen(row)) for row in rows if not row["name"].startswith(("deployment:", "tag:"))]

    async def set_limit(self, name: str, slots: int, *, only_missing: bool = False) -> bool:
        """Create a limit, or give an existing one this number; return whether anything changed."""
        seen = await self.limit(name)  # first: a server logs a traceback when a limit is created twice
        if seen is None:
            if await self._create(name, slots):
                await asyncio.to_thread(record_change, "limits create", name, after=slots)
                return True
            seen = await self.limit(name)
        if only_missing or (seen is not None and seen.limit == slots):
            return False
        await self._update(name, GlobalConcurrencyLimitUpdate(limit=slots))
        await asyncio.to_thread(record_change, "limits set", name, before=seen.limit if seen else "", after=slots)
        return True

    async def _create(self, name: str, slots: int) -> bool:
        """Return whether the limit was created; False if another process was first."""
        new = GlobalConcurrencyLimitCreate(name=name, limit=slots, active=True, slot_decay_per_second=0)
        async with self._lock:
            try:
                await _answer(self._client.create_global_concurrency_limit(new))
            except ObjectAlreadyExists:
                return False
        return True

    async def set_active_slots(self, name: str, slots: int) -> None:
        """Make a limit count `slots` as taken.

        Raises:
            NotFoundError: if there is no such limit.
        """
        await self._update(name, GlobalConcurrencyLimitUpdate(active_slots=slots))

    async def _update(self, name: str, update: GlobalConcurrencyLimitUpdate) -> None:
        try:
            async with self._lock:
                await _answer(self._client.update_global_concurrency_limit(name, update))
        except ObjectNotFound:
            raise errors.NotFoundError(
                f"there is no limit {name!r}", next_step="`headgate limits show` lists them."
            ) from None

    async def lease(self, name: str, slots: int, lease_s: float) -> str | NoSlots | None:
        """Return the id of a new lease, or `NoSlots`; None if the limit does not exist."""
        async with self._lock:
            answer = await _answer(
                self._client.increment_concurrency_slots_with_lease(
                    names=[name], slots=slots, mode="concurrency", lease_duration=lease_s
                )
            )
        if answer.status_code in (httpx.codes.LOCKED, httpx.codes.UNPROCESSABLE_ENTITY):
            return NoSlots(_seconds(answer.headers.get("Retry-After")))
        document = answer.json()
        if not document["limits"]:
            # The server grants leases of limits that do not exist: there is nothing to hold.
            await self.give_back(document["lease_id"])
            return None
        return str(document["lease_id"])

    async def renew(self, lease_id: str, lease_s: float) -> bool:
        """Renew a lease; return whether the server still knows it."""
        answer = await _answer(self._client.renew_concurrency_lease(UUID(lease_id), lease_duration=lease_s))
        return int(answer.status_code) != httpx.codes.GONE

    async def give_back(self, lease_id: str) -> None:
        """End a lease and free its slots; do nothing if it has ended already."""
        async with self._lock:
            await _answer(self._client.release_concurrency_slots_with_lease(UUID(lease_id)))

    async def holders(self) -> list[Holder]:
        """Return the register: every process that has written to it, including dead ones."""
        rows, now = await self._listed("/variables/filter", variables={"name": {"like_": REGISTER_PREFIX}})
        found = (holder_of(variable, now) for variable in rows)
        return [holder for holder in found if holder is not None]

    async def _listed(self, path: _Listing, **wanted: Any) -> tuple[list[Any], datetime]:
        """Return all rows of a listing, page by page, and the server's time."""
        rows: list[Any] = []
        while True:
            page = wanted | {"limit": _PAGE, "offset": len(rows)}
            answer = await _answer(self._client.request("POST", path, json=page))
            rows += answer.json()
            if len(rows) < page["offset"] + _PAGE:
                return rows, server_time(answer)

    async def write_entry(self, holder: str, value: Mapping[str, Any], *, is_first: bool) -> None:
        """Write a process's entry in the register."""
        name = REGISTER_PREFIX + holder
        async with self._lock:
            if not is_first:
                change = {"value": value}
                answer = await _answer(
                    self._client.request("PATCH", "/variables/name/{name}", path_params={"name": name}, json=change)
                )
                if answer.status_code != httpx.codes.NOT_FOUND:
                    return
            await _answer(self._client.request("POST", "/variables/", json={"name": name, "value": value}))

    async def drop_entry(self, holder: str) -> None:
        """Delete a process's entry from the register."""
        async with self._lock:
            name = REGISTER_PREFIX + holder
            await _answer(self._client.request("DELETE", "/variables/name/{name}", path_params={"name": name}))


@asynccontextmanager
async def open_slot_service() -> AsyncIterator[SlotService]:
    """Yield the service with its own client. Use it in a separate task: the client's retries are off in that task.

    The bank decides when to retry: Prefect's client would wait in the middle of a call, and after its last attempt,
    too, for two seconds or as long as the server asks, while this process holds the machine's lock.

    Raises:
        OrchestratorUnreachableError: if no API is configured.
    """
    quiet = {prefect_settings.PREFECT_CLIENT_MAX_RETRIES: 0}
    with prefect_settings.temporary_settings(quiet):
        try:
            client = get_client(httpx_settings={"event_hooks": {"response": [_raise_at_once]}})
        except ValueError as error:
            raise errors.OrchestratorUnreachableError(f"no Prefect API is configured: {error}") from None
        async with client:
            yield SlotService(client)


async def _raise_at_once(response: httpx.Response) -> None:
    if response.is_server_error or response.status_code in _BUSY:
        response.raise_for_status()


async def _answer(call: Awaitable[Any]) -> Any:
    """Return the answer to a call, including statuses that answer the request (`_MEANT`).

    Raises:
        SlotServiceBusyError: if the server asks to retry later.
        OrchestratorUnreachableError: if it does not answer, or reports that it failed.
    """
    try:
        async with asyncio.timeout(_CALL_S):
            return await call
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status in _MEANT:
            return error.response
        kind = SlotServiceBusyError if status in _BUSY else errors.OrchestratorUnreachableError
        raise kind(f"the Prefect API answers {status}") from None
    except (httpx.HTTPError, OSError) as error:
        words = str(error) or type(error).__name__
        url = get_current_settings().api.url
        raise errors.OrchestratorUnreachableError(f"the Prefect API at {url} does not answer ({words})") from None
    except (ObjectAlreadyExists, ObjectNotFound):
        raise
    except PrefectException as error:
        raise errors.OrchestratorUnreachableError(f"the Prefect API cannot be used: {error}") from None


def _seen(document: Mapping[str, Any]) -> LimitSeen:
    return LimitSeen(int(document["limit"]), int(document["active_slots"] or 0), bool(document["active"]))


def _seconds(text: str | None) -> float | None:
    with suppress(TypeError, ValueError):
        return max(0.0, float(text))  # type: ignore[arg-type] # None is refused like any other text
    return None


def server_time(answer: httpx.Response) -> datetime:
    """Return the server's time: ages of the register's entries must not depend on this machine's clock."""
    with suppress(KeyError, ValueError):
        return parsedate_to_datetime(answer.headers["Date"])
    return datetime.now(UTC)
