"""The file and batch routes of an OpenAI-compatible server: one file holds many requests, answered over time.

`headgate serve-baselines` and the gateway of `headgate elastic serve` have them. Files and batches are kept in memory
while the server runs, for a week at most; the server determines their owner, and only the owner sees them.
"""

from __future__ import annotations

import asyncio
import io
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson
from aiohttp import web

from headgate.core import Clock, json_value
from headgate.core.tasks import cancelled
from headgate.models.wire import TASK_HEADER, error_body

TASK_METADATA: Final = "headgate_task"
"""Key in the `metadata` of a batched request's body that names its task, as lines of a batch have no headers."""

ENDPOINT: Final = "/v1/chat/completions"
WINDOW_S: Final = 86_400.0

_BUSY: Final = frozenset({429, 503})
_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_MOST_METADATA: Final = 16
_PART_BYTES: Final = 256 * 1024

Answer = Callable[[str, bytes, Mapping[str, str]], Awaitable[tuple[int, bytes]]]
"""Answers one request: called with its owner, body and headers, it returns the status and body of the answer."""

Owner = Callable[[web.Request], Awaitable[str]]
"""Returns the owner of the files and batches that a request may use; raises the server's refusal."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a server keeps, and how much of it is processed at once.

    Attributes:
        file_bytes: size of one file.
        owner_bytes: size of all files of one owner, results included.
        all_bytes: size of all files.
        batches: number of batches of one owner, ended ones included.
        requests: number of requests in one batch.
        parallel: number of batched requests in flight.
        keep_s: seconds after which a file, or a batch that has ended, is deleted.
        most_waits: retries of a request whose answer is that there is no capacity.
    """

    file_bytes: int = 64 * 1024 * 1024
    owner_bytes: int = 256 * 1024 * 1024
    all_bytes: int = 1024 * 1024 * 1024
    batches: int = 1_000
    requests: int = 50_000
    parallel: int = 8
    keep_s: float = 7 * 86_400.0
    most_waits: int = 12


@dataclass(slots=True)
class _File:
    id: str
    owner: str
    purpose: str
    name: str
    data: bytes
    created_at: float

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "file",
            "bytes": len(self.data),
            "created_at": int(self.created_at),
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
        }


@dataclass(slots=True)
class _Batch:
    id: str
    owner: str
    source: _File
    metadata: dict[str, str] | None
    created_at: float
    key: str
    status: str = "validating"
    times: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"total": 0, "completed": 0, "failed": 0})
    files: dict[str, str | None] = field(default_factory=lambda: {"output_file_id": None, "error_file_id": None})
    problem: tuple[str, str, int | None] | None = None
    work: asyncio.Task[None] | None = None

    def reached(self, status: str, now: float) -> None:
        self.status = status
        self.times[f"{status}_at"] = int(now)

    def shown(self) -> dict[str, Any]:
        errors = None
        if self.problem is not None:
            code, message, line = self.problem
            errors = {"object": "list", "data": [{"code": code, "message": message, "param": None, "line": line}]}
        times = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": ENDPOINT,
            "errors": errors,
            "input_file_id": self.source.id,
            "completion_window": "24h",
            "status": self.status,
            **self.files,
            "created_at": int(self.created_at),
            "expires_at": int(self.created_at + WINDOW_S),
            **{f"{name}_at": self.times.get(f"{name}_at") for name in times},
            "request_counts": dict(self.counts),
            "metadata": self.metadata,
        }


_Kept = TypeVar("_Kept", _File, _Batch)


class _RefusedError(Exception):
    """A refusal that is sent to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BatchRoutes:
    """`/v1/files` and `/v1/batches` of one server. Enter `working` while it serves."""

    def __init__(self, answer: Answer, owner: Owner, clock: Clock, limits: BatchLimits | None = None) -> None:
        self.limits = limits or BatchLimits()
        self._answer = answer
        self._owner = owner
        self._clock = clock
        self._files: dict[str, _File] = {}
        self._batches: dict[str, _Batch] = {}
        self._room = asyncio.Semaphore(self.limits.parallel)

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        for method, path, handler in (
            ("POST", "/v1/files", self._upload),
            ("GET", "/v1/files", self._list_files),
            ("GET", "/v1/files/{id}", self._show_file),
            ("DELETE", "/v1/files/{id}", self._delete_file),
            ("GET", "/v1/files/{id}/content", self._content),
            ("POST", "/v1/batches", self._create),
            ("GET", "/v1/batches", self._list_batches),
            ("GET", "/v1/batches/{id}", self._show_batch),
            ("POST", "/v1/batches/{id}/cancel", self._cancel),
        ):
            app.router.add_route(method, path, self._told(handler))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Process batches until the context ends; unfinished batches are lost with the server."""
        try:
            yield
        finally:
            await cancelled(*(batch.work for batch in self._batches.values() if batch.work is not None))

    def _told(
        self, handler: Callable[[web.Request, str], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answered(http: web.Request) -> web.Response:
            try:
                owner = await self._owner(http)
                self._forget_old()
                return await handler(http, owner)
            except _RefusedError as refused:
                kind = "rate_limit_error" if refused.status == 429 else "invalid_request_error"
                return json_answer(error_body(str(refused), kind, refused.status), refused.status)

        return answered

    # Files.

    async def _upload(self, http: web.Request, owner: str) -> web.Response:
        purpose, name, data = await self._form(http)
        if purpose != "batch":
            raise _RefusedError(400, f"purpose must be batch (got {purpose[:60]!r})")
        if not data:
            raise _RefusedError(400, "the form must have a file that is not empty")
        stored = self._keep(owner, purpose, name, data)
        if stored is None:
            raise _RefusedError(429, "your files fill the server's space for you; delete some, or wait for expiry")
        return _shown(stored.shown())

    async def _form(self, http: web.Request) -> tuple[str, str, bytes]:
        """Return the purpose, name and bytes of the file in a form."""
        purpose, name, data = "", "", bytearray()
        try:
            async for part in await http.multipart():
                held = bytearray()
                while piece := await part.read_chunk(_PART_BYTES):  # type: ignore[union-attr]  # forms are flat
                    held += piece
                    if len(held) > self.limits.file_bytes:
                        raise _RefusedError(413, f"a file must be at most {self.limits.file_bytes} bytes (got more)")
                if part.name == "file":  # type: ignore[union-attr]
                    name, data = (part.filename or "batch.jsonl")[:200], held  # type: ignore[union-attr]
                elif part.name == "purpose":  # type: ignore[union-attr]
                    purpose = held.decode("utf-8", "replace")
        except (AssertionError, AttributeError, ValueError, LookupError):
            raise _RefusedError(400, "the body must be a multipart form with a purpose and a file") from None
        return purpose, name, bytes(data)

    def _keep(self, owner: str, purpose: str, name: str, data: bytes) -> _File | None:
        """Store a file; return None if there is no room for it."""
        used = sum(len(one.data) for one in self._files.values())
        mine = sum(len(one.data) for one in self._files.values() if one.owner == owner)
        if mine + len(data) > self.limits.owner_bytes or used + len(data) > self.limits.all_bytes:
            return None
        made = _File(f"file-{secrets.token_hex(12)}", owner, purpose, name, data, self._clock.wall())
        self._files[made.id] = made
        return made

    async def _list_files(self, http: web.Request, owner: str) -> web.Response:
        purpose = http.query.get("purpose")
        mine = [one for one in self._files.values() if one.owner == owner and purpose in (None, one.purpose)]
        return _shown(_page([one.shown() for one in reversed(mine)], http))

    async def _show_file(self, http: web.Request, owner: str) -> web.Response:
        return _shown(_owned(self._files, "file", http, owner).shown())

    async def _delete_file(self, http: web.Request, owner: str) -> web.Response:
        found = _owned(self._files, "file", http, owner)
        del self._files[found.id]
        return _shown({"id": found.id, "object": "file", "deleted": True})

    async def _content(self, http: web.Request, owner: str) -> web.Response:
        return web.Response(body=_owned(self._files, "file", http, owner).data, content_type="application/octet-stream")

    # Batches.

    async def _create(self, http: web.Request, owner: str) -> web.Response:
        key = http.headers.get("Idempotency-Key", "")[:200]
        for batch in self._batches.values() if key else ():
            if batch.key == key and batch.owner == owner:
                return _shown(batch.shown())
        wanted = await _object_in(http)
        source = self._files.get(str(wanted.get("input_file_id")))
        if source is None or source.owner != owner or source.purpose != "batch":
            raise _RefusedError(400, f"there is no input file {str(wanted.get('input_file_id'))[:100]!r}")
        if wanted.get("endpoint") != ENDPOINT:
            raise _RefusedError(400, f"endpoint must be {ENDPOINT} (got {str(wanted.get('endpoint'))[:100]!r})")
        if wanted.get("completion_window") != "24h":
            raise _RefusedError(400, "completion_window must be 24h")
        if sum(batch.owner == owner for batch in self._batches.values()) >= self.limits.batches:
            raise _RefusedError(429, f"the server keeps at most {self.limits.batches} batches for you (got one more)")
        metadata = _metadata(wanted.get("metadata"))
        batch = _Batch(f"batch_{secrets.token_hex(12)}", owner, source, metadata, self._clock.wall(), key)
        self._batches[batch.id] = batch
        batch.work = asyncio.create_task(self._work(batch), name=f"batch {batch.id}")
        return _shown(batch.shown())

    async def _list_batches(self, http: web.Request, owner: str) -> web.Response:
        mine = [batch.shown() for batch in reversed(self._batches.values()) if batch.owner == owner]
        return _shown(_page(mine, http))

    async def _show_batch(self, http: web.Request, owner: str) -> web.Response:
        return _shown(_owned(self._batches, "batch", http, owner).shown())

    async def _cancel(self, http: web.Request, owner: str) -> web.Response:
        batch = _owned(self._batches, "batch", http, owner)
        if batch.status in _ENDED:
            raise _RefusedError(409, f"the batch has ended: it is {batch.status}")
        if batch.status != "cancelling":
            batch.reached("cancelling", self._clock.wall())
        return _shown(batch.shown())

    def _forget_old(self) -> None:
        before = self._clock.wall() - self.limits.keep_s
        for batch in [one for one in self._batches.values() if one.created_at < before and one.status in _ENDED]:
            del self._batches[batch.id]
        for old in [one for one in self._files.values() if one.created_at < before]:
            del self._files[old.id]

    # The work of a batch.

    async def _work(self, batch: _Batch) -> None:
        requests, problem = await _requests_in(batch.source.data, self.limits.requests)
        if problem is not None:
            batch.problem = problem
            batch.reached("failed", self._clock.wall())
            return
        batch.counts["total"] = len(requests)
        if batch.status == "validating":
            batch.reached("in_progress", self._clock.wall())
        results: dict[bool, list[bytes]] = {True: [], False: []}
        async with asyncio.TaskGroup() as group:
            for custom_id, body in requests:
                await self._room.acquire()
                group.create_task(self._asked(batch, custom_id, body, results)).add_done_callback(
                    lambda _: self._room.release()
                )
        wanted = batch.status
        batch.reached("finalizing", self._clock.wall())
        for is_good, place in ((True, "output_file_id"), (False, "error_file_id")):
            if results[is_good]:
                data = b"\n".join(results[is_good]) + b"\n"
                stored = self._keep(batch.owner, "batch_output", f"{batch.id}_{place.split('_', 1)[0]}.jsonl", data)
                batch.files[place] = stored.id if stored is not None else None
                if stored is None:
                    batch.problem = ("storage_full", "the server has no room for the results", None)
                    wanted = "failed"
        ended = {"cancelling": "cancelled", "expired": "expired", "failed": "failed"}.get(wanted, "completed")
        batch.reached(ended, self._clock.wall())

    async def _asked(
        self, batch: _Batch, custom_id: str, body: dict[str, Any], results: dict[bool, list[bytes]]
    ) -> None:
        """Send one request, and add its line to the results."""
        response: dict[str, Any] | None = None
        error: dict[str, str] | None = None
        if self._clock.wall() >= batch.created_at + WINDOW_S:
            batch.status = "expired"
            error = {"code": "batch_expired", "message": "The batch expired before this request was sent."}
        elif batch.status == "cancelling":
            error = {"code": "batch_cancelled", "message": "The batch was cancelled before this request was sent."}
        else:
            status, answer = await self._patiently(batch, body)
            try:
                said = orjson.loads(answer)
            except orjson.JSONDecodeError:
                said = {"error": {"message": "the answer was not JSON"}}
            response = {"status_code": status, "request_id": secrets.token_hex(8), "body": said}
        is_good = response is not None and 200 <= response["status_code"] < 300
        batch.counts["completed" if is_good else "failed"] += 1
        line = {
            "id": f"batch_req_{secrets.token_hex(12)}",
            "custom_id": custom_id,
            "response": response,
            "error": error,
        }
        results[is_good].append(orjson.dumps(line))

    async def _patiently(self, batch: _Batch, body: dict[str, Any]) -> tuple[int, bytes]:
        """Return the answer to a request; while there is no capacity for it, retry for a while."""
        metadata = body.get("metadata")
        task = metadata.get(TASK_METADATA) if isinstance(metadata, dict) else None
        headers = {TASK_HEADER: task} if isinstance(task, str) else {}
        asked = orjson.dumps({name: value for name, value in body.items() if not name.startswith("stream")})
        for waits in range(self.limits.most_waits + 1):
            status, answer = await self._answer(batch.owner, asked, headers)
            if status not in _BUSY or waits == self.limits.most_waits or batch.status == "cancelling":
                break
            await self._clock.sleep(min(60.0, 0.5 * 2.0**waits))
        return status, answer


def _owned(kept: Mapping[str, _Kept], what: str, http: web.Request, owner: str) -> _Kept:
    found = kept.get(name := http.match_info["id"])
    if found is None or found.owner != owner:
        raise _RefusedError(404, f"there is no {what} {name[:100]!r}")
    return found


async def _requests_in(
    data: bytes, most: int
) -> tuple[list[tuple[str, dict[str, Any]]], tuple[str, str, int | None] | None]:
    """Return the requests of an input file, and the rule that it breaks, if any: code, sentence and line."""
    found: dict[str, dict[str, Any]] = {}
    models: set[str] = set()
    for number, line in enumerate(filter(None, map(bytes.strip, io.BytesIO(data))), start=1):
        if number > most:
            return [], ("too_many_tasks", f"a batch must have at most {most} requests (got more)", None)
        if not number % 200:
            await asyncio.sleep(0)
        try:
            read: Any = json_value(line)
        except orjson.JSONDecodeError:
            read = None
        match read:
            case {"custom_id": str() as custom_id, "method": "POST", "url": str() as url, "body": dict() as body}:
                pass
            case _:
                what = "a line must be a JSON object with custom_id, method POST, url and body"
                return [], ("invalid_json_line", what, number)
        if url != ENDPOINT:
            return [], ("mismatched_endpoint", f"url must be {ENDPOINT} (got {url[:100]!r})", number)
        if custom_id in found:
            return [], ("duplicate_custom_id", f"custom_id {custom_id[:100]!r} is used twice", number)
        models.add(str(body.get("model")))
        if len(models) > 1:
            return [], ("mismatched_model", "all requests of a batch must name the same model", number)
        found[custom_id] = body
    if not found:
        return [], ("empty_file", "the input file has no requests", None)
    return list(found.items()), None


async def _object_in(http: web.Request) -> dict[str, Any]:
    try:
        read: Any = json_value(await http.read())
    except orjson.JSONDecodeError:
        read = None
    if not isinstance(read, dict):
        raise _RefusedError(400, "the body must be a JSON object")
    return read


def _metadata(given: object) -> dict[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, dict) or len(given) > _MOST_METADATA:
        raise _RefusedError(400, f"metadata must be an object with at most {_MOST_METADATA} pairs")
    if not all(isinstance(value, str) and len(name) <= 64 and len(value) <= 512 for name, value in given.items()):
        raise _RefusedError(400, "metadata must have texts of at most 512 characters, with names of at most 64")
    return given


def _page(shown: list[dict[str, Any]], http: web.Request) -> dict[str, Any]:
    """Return one page of a listing, latest first."""
    limit = http.query.get("limit", "20")
    most = min(max(1, int(limit)), 100) if limit.isascii() and limit.isdigit() else 20
    after = http.query.get("after")
    start = next((n + 1 for n, one in enumerate(shown) if one["id"] == after), len(shown)) if after else 0
    data = shown[start : start + most]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, **ends, "has_more": start + most < len(shown)}


def _shown(document: dict[str, Any]) -> web.Response:
    return json_answer(orjson.dumps(document))


def json_answer(body: bytes, status: int = 200) -> web.Response:
    """Return an answer whose body is JSON."""
    return web.Response(body=body, status=status, content_type="application/json")
