"""The batch client: submits many chat requests in one file, which the provider answers within a day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol
from urllib.parse import quote

import aiohttp
import orjson

from headgate.core import ChatError, ChatReply, Clock, ErrorKind, Message, Model, json_value, masked
from headgate.models.answer import failure_of_status, read_completion
from headgate.models.batch_routes import ENDPOINT, TASK_METADATA
from headgate.models.client import Connections, failure_of_exception, read_up_to, request_body
from headgate.models.wire import TASK_HEADER_OPTION

KEY_METADATA: Final = "headgate_batch"
"""Metadata key of a batch's `key`, by which to find a batch whose creation got no answer."""

_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_DOCUMENT_BYTES: Final = 2**20
_LISTED: Final = 100
_MOST_PAGES: Final = 20
_ERROR_BYTES: Final = 64 * 1024
_LINE_BYTES: Final = 16 * 1024 * 1024 + _ERROR_BYTES
_RESULT_BYTES: Final = 2**30
_REST: Final = 4.0
"""How long to rest after reading results, as a multiple of the CPU time that it took: models share the processor."""

_PATIENCE_S: Final = 600.0
"""Timeout for uploading a file, and for reading one."""


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch as its provider describes it.

    Attributes:
        status: the provider's word for its state; see `is_ended`.
        total: number of requests, 0 if the provider does not say.
        done: number of requests that are answered or have failed.
        files: ids of the files with results and with errors.
        problem: why it failed, in the provider's words.
    """

    batch_id: str
    status: str
    total: int = 0
    done: int = 0
    files: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether it has reached a final state."""
        return self.status in _ENDED


class BatchSender(Protocol):
    """Sends batches to a model's provider: `BatchClient`, or a test double in a simulation.

    Each method raises `ChatError`, as a chat does, and retries nothing.
    """

    async def upload(self, model: Model, key: str, data: bytes) -> str:
        """Upload a file of requests and return its id."""

    async def create(self, model: Model, key: str, file_id: str) -> BatchStatus:
        """Create a batch from an uploaded file."""

    async def find(self, model: Model, key: str) -> BatchStatus | None:
        """Return the batch that was created with a key; None if the provider has none."""

    async def status(self, model: Model, batch_id: str) -> BatchStatus:
        """Return the status of a batch."""

    def results(self, model: Model, batch: BatchStatus) -> AsyncIterator[tuple[str, ChatReply | None]]:
        """Yield `custom_id` and reply of each result; None for a result that is not an answer."""

    async def cancel(self, model: Model, batch_id: str) -> None:
        """Cancel a batch's remaining requests."""


def batch_line(model: Model, custom_id: str, messages: Sequence[Message], task: str) -> bytes:
    """Return one line of a file of requests; `task` is included only for models with the task header option."""
    options = {name: value for name, value in model.options if not name.startswith("stream")}
    if options.get(TASK_HEADER_OPTION) is True:
        options["metadata"] = {TASK_METADATA: task}
    body = orjson.Fragment(request_body(model, messages, options, streams=False))
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body})


class BatchClient:
    """Implements `BatchSender` over HTTP, on the connections of a `ChatClient`."""

    def __init__(self, connections: Connections, clock: Clock, *, deadline_s: float = 120.0) -> None:
        self._connections = connections
        self._clock = clock
        self._deadline_s = deadline_s

    async def upload(self, model: Model, key: str, data: bytes) -> str:
        """Upload a file of requests and return its id."""
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        form.add_field("file", data, filename=f"{key}.jsonl", content_type="application/jsonl")
        found = await self._asked("POST", model, "files", deadline_s=_PATIENCE_S, data=form)
        return _text(found.get("id")) or _no("a file without an id")

    async def create(self, model: Model, key: str, file_id: str) -> BatchStatus:
        """Create a batch from an uploaded file."""
        wanted = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
        body = orjson.dumps(wanted | {"metadata": {KEY_METADATA: key}})
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        return _status(await self._asked("POST", model, "batches", data=body, headers=headers))

    async def find(self, model: Model, key: str) -> BatchStatus | None:
        """Return the batch that was created with a key, if it is among the provider's latest."""
        after = ""
        for _ in range(_MOST_PAGES):
            page = await self._asked("GET", model, f"batches?limit={_LISTED}{after}")
            listed = [one for one in page.get("data") or () if isinstance(one, dict)]
            for one in listed:
                metadata = one.get("metadata")
                if isinstance(metadata, dict) and metadata.get(KEY_METADATA) == key:
                    return _status(one)
            last = _text(listed[-1].get("id")) if listed else ""
            if not page.get("has_more") or not last:
                return None
            after = f"&after={quote(last, safe='')}"
        return None

    async def status(self, model: Model, batch_id: str) -> BatchStatus:
        """Return the status of a batch."""
        return _status(await self._asked("GET", model, f"batches/{quote(batch_id, safe='')}"))

    async def cancel(self, model: Model, batch_id: str) -> None:
        """Cancel a batch's remaining requests."""
        await self._asked("POST", model, f"batches/{quote(batch_id, safe='')}/cancel")

    async def results(self, model: Model, batch: BatchStatus) -> AsyncIterator[tuple[str, ChatReply | None]]:
        """Yield `custom_id` and reply of each result; lines that are too long, or not a result, are skipped."""
        for file_id in batch.files:
            async with self._answered(
                "GET", model, f"files/{quote(file_id, safe='')}/content", _PATIENCE_S
            ) as response:
                async for found in _results(response, _LINE_BYTES):
                    for one in found:
                        yield one

    async def _asked(
        self, method: str, model: Model, path: str, deadline_s: float | None = None, **more: Any
    ) -> dict[str, Any]:
        async with self._answered(method, model, path, deadline_s or self._deadline_s, **more) as response:
            body = await read_up_to(response, _DOCUMENT_BYTES)
        try:
            found = json_value(body)
        except orjson.JSONDecodeError:
            found = None
        return found if isinstance(found, dict) else _no(f"{method} {path.partition('?')[0]} answered no JSON object")

    @asynccontextmanager
    async def _answered(
        self,
        method: str,
        model: Model,
        path: str,
        deadline_s: float,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the response to a request, on a separate connection; raises as `ChatClient.chat` does."""
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        if model.api_key:
            sent["Authorization"] = f"Bearer {model.api_key.reveal()}"
        url, was_answered = f"{model.base_url.rstrip('/')}/{path}", False
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._connections.fresh.request(
                    method, url, headers=sent, data=data, allow_redirects=False
                ) as response,
            ):
                was_answered = True
                if not 200 <= response.status < 300:
                    body = await read_up_to(response, _ERROR_BYTES)
                    raise failure_of_status(response.status, body, response.headers, self._clock.wall())
                yield response
                return
        except (aiohttp.ClientError, OSError) as error:
            failed = failure_of_exception(error, was_answered=was_answered, deadline_s=deadline_s)
        raise failed  # outside of `except`: the transport's exceptions carry request headers, and so the key


async def _results(response: aiohttp.ClientResponse, longest: int) -> AsyncIterator[list[tuple[str, ChatReply | None]]]:
    """Yield the results in a response, some at a time, of lines that are not too long; read at most `_RESULT_BYTES`."""
    rest, is_skipping, received = bytearray(), False, 0
    async for data in response.content.iter_any():
        began, received = time.thread_time(), received + len(data)
        found: list[tuple[str, ChatReply | None]] = []
        if received > _RESULT_BYTES:
            response.close()
            return
        *whole, end = data.split(b"\n")
        for part in whole:
            rest += part
            if rest and not is_skipping and len(rest) <= longest:
                found += filter(None, [_result(rest)])
            rest, is_skipping = bytearray(), False
        rest += end
        if len(rest) > longest:
            rest, is_skipping = bytearray(), True
        await asyncio.sleep(_REST * (time.thread_time() - began))
        yield found
    if rest and not is_skipping:
        yield list(filter(None, [_result(rest)]))


def _result(line: bytes | bytearray) -> tuple[str, ChatReply | None] | None:
    try:
        found: Any = json_value(line, most_values=2**20, halves="replaced")
    except orjson.JSONDecodeError:
        return None
    match found:
        case {"custom_id": str() as custom_id, "response": {"status_code": 200 | "200", "body": dict() as body}}:
            try:
                return custom_id, read_completion(orjson.dumps(body)).reply(0.0, lane="batch")
            except ChatError:
                return custom_id, None
        case {"custom_id": str() as custom_id}:
            return custom_id, None
        case _:
            return None


def _status(found: dict[str, Any]) -> BatchStatus:
    counts = found.get("request_counts")
    counted = {name: n for name, n in counts.items() if type(n) is int} if isinstance(counts, dict) else {}
    files = tuple(name for place in ("output_file_id", "error_file_id") if (name := _text(found.get(place))))
    errors = found.get("errors")
    listed = errors.get("data") if isinstance(errors, dict) else None
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return BatchStatus(
        _text(found.get("id")) or _no("a batch without an id"),
        _text(found.get("status")) or _no("a batch without a status"),
        max(0, counted.get("total", 0)),
        max(0, counted.get("completed", 0)) + max(0, counted.get("failed", 0)),
        files,
        masked(_text(first.get("message")))[:300],
    )


def _text(value: object) -> str:
    """Return a provider's id or text; empty if it cannot be part of an address."""
    return value if isinstance(value, str) and value.isprintable() and len(value) <= 1_000 else ""


def _no(what: str) -> NoReturn:
    raise ChatError(ErrorKind.PROVIDER_FAILURE, what)
