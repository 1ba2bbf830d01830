"""The OpenAI-compatible API: each request is parsed, admitted, and sent to the pool, whose answer is passed on."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from zlib import crc32

import orjson
from aiohttp import web

from headgate.admission import SUCCESS
from headgate.core import Clock, json_value
from headgate.core.errors import HeadgateError
from headgate.elastic.engines import EngineAnswer, Outgoing
from headgate.elastic.errors import (
    BodyTooLargeError,
    EngineError,
    InvalidRequestError,
    PoolClosedError,
    UnknownModelError,
)
from headgate.elastic.gateway.access import Callers
from headgate.elastic.gateway.admission import FAILED, WITHDRAWN, PoolAdmission
from headgate.elastic.gateway.wire import error_event, json_answer, openai_body
from headgate.elastic.service import ElasticService
from headgate.models import TASK_HEADER
from headgate.net.aiohttp_server import read_body

CHARS_PER_TOKEN: Final = 4
"""Average of tokenizers for English; code and other languages take more tokens."""

ANSWER_TOKENS: Final = 256
"""Assumed length of an answer if the request does not bound it."""

MOST_ANSWER_TOKENS: Final = 4096
"""Upper bound of the assumed length, as in SGLang's scheduler (`CLIP_MAX_NEW_TOKENS`): clients that allow 32k tokens
get a few hundred, and workers that reserved room for all of it would stay half empty."""

MOST_CHOICES: Final = 128
"""OpenAI's own bound on `n`."""

_MOST_VALUES: Final = 2**20
"""Most values in a body, as prompts may be token ids: parsing this many blocks the event loop for half a second."""

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"


class ModelRequest(NamedTuple):
    """The fields of a request that the gateway needs.

    Attributes:
        model: the model that it names; empty if none.
        tokens: tokens that it may take, prompt and answer.
        prefixes: hashes of the beginning of its prompt.
        user: the user that it names; empty if none.
    """

    model: str
    tokens: int
    prefixes: tuple[int, ...]
    user: str


def read_request(path: str, body: bytes) -> ModelRequest:
    """Return the parsed body of a request to `CHAT` or `COMPLETIONS`; any further validation is left to the engine.

    Raises:
        InvalidRequestError: it is not a JSON object, or has no valid messages or prompt.
    """
    try:
        written: Any = json_value(body, most_values=_MOST_VALUES)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body must be JSON ({error})") from None
    if not isinstance(written, dict):
        raise InvalidRequestError(f"the body must be a JSON object (got {_kind(written)})")
    model = written.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequestError(f"model must be a string (got {_kind(model)})")
    pieces = _messages(written) if path == CHAT else _prompt(written)
    user = written.get("user")
    return ModelRequest(
        model=model or "",
        tokens=sum(map(len, pieces)) // CHARS_PER_TOKEN + 1 + _answer_tokens(written),
        prefixes=prefixes_of(pieces),
        user=user if isinstance(user, str) else "",
    )


def _messages(written: dict[str, Any]) -> list[str]:
    """Return the roles and texts of a chat, in order."""
    messages = written.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError(f"messages must be a list of at least one message (got {_kind(messages)})")
    pieces: list[str] = []
    for message in messages:
        if not isinstance(message, dict):
            raise InvalidRequestError(f"a message must be a JSON object (got {_kind(message)})")
        pieces.append(str(message.get("role")))
        content = message.get("content")
        if isinstance(content, str):
            pieces.append(content)
        elif isinstance(content, list):
            pieces.extend(_texts(content))
    return pieces


def _texts(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            yield text


def _prompt(written: dict[str, Any]) -> list[str]:
    """Return the texts of a prompt; token ids are turned into a text of corresponding length."""
    prompt = written.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise InvalidRequestError(f"prompt must be a string, or a list that is not empty (got {_kind(prompt)})")
    if isinstance(prompt[0], int):
        return [_as_text(prompt)]
    return [piece if isinstance(piece, str) else _as_text(piece) for piece in prompt]


def _as_text(token_ids: Any) -> str:
    """Return a text with `CHARS_PER_TOKEN` characters per token; prompts with equal tokens get equal texts."""
    if not isinstance(token_ids, list):
        raise InvalidRequestError(f"a prompt must be a string or a list of token ids (got {_kind(token_ids)})")
    return "".join(f"{token!s:.{CHARS_PER_TOKEN}}".rjust(CHARS_PER_TOKEN) for token in token_ids)


def _answer_tokens(written: dict[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        if isinstance(limit := written.get(name), int):
            break
    else:
        limit = ANSWER_TOKENS
    choices = written.get("n")
    answers = min(choices, MOST_CHOICES) if isinstance(choices, int) and choices > 1 else 1
    return min(max(1, limit), MOST_ANSWER_TOKENS) * answers


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool() | int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return "an object"


BLOCK_BYTES: Final = 512
"""About 128 tokens: recomputing a shorter shared prefix is faster than looking it up."""

MOST_BLOCKS: Final = 16
"""8 KiB in total: prompts that are equal this far were rarely computed on different workers."""


def prefixes_of(pieces: Iterable[str]) -> tuple[int, ...]:
    """Return one rolling hash for each whole block at the beginning of a text, the shortest prefix first.

    Two texts share as many hashes as they have equal blocks at their beginning. Only the first 8 KiB are read. The only
    effect of a collision is that a request goes to another worker.

    Args:
        pieces: the parts of the text, in order; the boundaries between them count, too.
    """
    beginning = bytearray()
    for piece in pieces:
        beginning += piece[: BLOCK_BYTES * MOST_BLOCKS].encode("utf-8", "surrogatepass")
        beginning.append(0)
        if len(beginning) >= BLOCK_BYTES * MOST_BLOCKS:
            break
    if len(beginning) < BLOCK_BYTES:
        return ()
    view = memoryview(beginning)
    found: list[int] = []
    rolled = 0
    for end in range(BLOCK_BYTES, min(len(beginning), BLOCK_BYTES * MOST_BLOCKS) + 1, BLOCK_BYTES):
        rolled = crc32(view[end - BLOCK_BYTES : end], rolled)
        found.append(rolled)
    return tuple(found)


GROUP_HEADER: Final = "X-Headgate-Group"
REQUEST_ID_HEADER: Final = "X-Request-Id"

_GROUP_CHARS: Final = 100
_MOST_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Largest answer that is not streamed, as it is held in memory until it is complete."""

_CLIENT_GONE: Final = 499
_EVENTS: Final = "text/event-stream"
_PASSED_ON: Final = ("traceparent", "tracestate", "baggage", TASK_HEADER)
"""Headers passed to the engine: those of traces, and the task for scripted baselines. All others come from the client
library, or could change what the engine does."""


class Completions:
    """The routes under `/v1`. Owned by one gateway, which sets `is_draining` to refuse new requests."""

    def __init__(
        self,
        service: ElasticService,
        admission: PoolAdmission,
        callers: Callers,
        *,
        model: str | None,
        max_body_bytes: int,
        clock: Clock,
    ) -> None:
        self._service = service
        self._admission = admission
        self._callers = callers
        self._models = (model,) if model else service.status().models
        self._max_body_bytes = max_body_bytes
        self._started_at = clock.wall()
        self._ids = map((secrets.token_hex(4) + "{:012x}").format, itertools.count(1))
        self._in_flight = 0
        self.is_empty = asyncio.Event()  # no request is in flight
        self.is_empty.set()
        self.is_draining = False

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        app.router.add_post(CHAT, self._complete)
        app.router.add_post(COMPLETIONS, self._complete)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/v1/models/{model:.+}", self._show)

    async def _list(self, http: web.Request) -> web.Response:
        await self._callers.caller(http.headers)
        return json_answer(orjson.dumps({"object": "list", "data": [self._told(model) for model in self._models]}))

    async def _show(self, http: web.Request) -> web.Response:
        await self._callers.caller(http.headers)
        return json_answer(orjson.dumps(self._told(self._known(http.match_info["model"]))))

    def _told(self, model: str) -> dict[str, Any]:
        owner = f"headgate-elastic {self._service.name}"
        return {"id": model, "object": "model", "created": int(self._started_at), "owned_by": owner}

    async def _complete(self, http: web.Request) -> web.StreamResponse:
        self._in_flight += 1
        self.is_empty.clear()
        try:
            return await self._answered(http)
        except ConnectionResetError:
            return web.Response(status=_CLIENT_GONE)  # the client is gone and will not see it
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self.is_empty.set()

    async def _answered(self, http: web.Request) -> web.StreamResponse:
        caller = await self._callers.caller(http.headers)
        if self.is_draining:
            raise PoolClosedError(f"The gateway of the pool {self._service.name} stops")
        body = await self._body(http)
        wanted = read_request(http.path, body)
        model = self._known(wanted.model)
        group = _printable(http.headers.get(GROUP_HEADER) or caller.name or wanted.user)
        request_id = next(self._ids)
        outgoing = Outgoing(request_id, http.path, body, _passed_on(http.headers))
        async with self._sent(outgoing, wanted, model, group) as answer:
            sent = {**answer.headers, REQUEST_ID_HEADER: request_id}
            if answer.content_type.startswith(_EVENTS):
                return await _streamed(http, answer, sent)
            sent["Content-Type"] = answer.content_type
            return web.Response(body=await _whole(answer), status=answer.status, headers=sent)

    async def answered(self, group: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Return status and body of the answer to a chat of a batch, on behalf of its owner, also for an error."""
        try:
            wanted = read_request(CHAT, body)
            model, request_id = self._known(wanted.model), next(self._ids)
            if self.is_draining:
                raise PoolClosedError(f"The gateway of the pool {self._service.name} stops")
            async with self._sent(Outgoing(request_id, CHAT, body, dict(headers)), wanted, model, group) as answer:
                return answer.status, await _whole(answer)
        except HeadgateError as error:
            return error.http_status, openai_body(error)

    @asynccontextmanager
    async def _sent(
        self, outgoing: Outgoing, wanted: ModelRequest, model: str, group: str
    ) -> AsyncIterator[EngineAnswer]:
        """Yield an engine's answer to a request once it is admitted; report its outcome to admission."""
        lease = await self._admission.enter(model, group, outgoing.request_id)
        outcome = FAILED
        try:
            async with self._service.request(
                outgoing, tokens=wanted.tokens, prefixes=wanted.prefixes, group=group
            ) as answer:
                yield answer
            outcome = SUCCESS
        except (asyncio.CancelledError, ConnectionResetError):
            outcome = WITHDRAWN
            raise
        finally:
            self._admission.leave(lease, outcome)

    async def _body(self, http: web.Request) -> bytes:
        try:
            return await read_body(http)
        except web.HTTPRequestEntityTooLarge:
            raise BodyTooLargeError(f"the body must be at most {self._max_body_bytes} bytes (got more)") from None

    def _known(self, model: str) -> str:
        """Return the model that a request is for; if the engines report no models, any name is passed on.

        Raises:
            UnknownModelError: the pool does not serve it.
        """
        if not self._models:
            return ""
        if not model:
            return self._models[0]
        if model not in self._models:
            served = ", ".join(self._models)
            raise UnknownModelError(
                f"no model {model[:100]!r} is served by the pool {self._service.name}, but {served}"
            )
        return model


async def _whole(answer: EngineAnswer) -> bytes:
    parts: list[bytes] = []
    left = _MOST_ANSWER_BYTES
    async for chunk in answer.chunks:
        left -= len(chunk)
        if left < 0:
            raise EngineError(f"an engine answered with more than {_MOST_ANSWER_BYTES} bytes without streaming")
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _streamed(http: web.Request, answer: EngineAnswer, headers: Mapping[str, str]) -> web.StreamResponse:
    """Pass on a stream of events; a stream that breaks ends with an error event and without `[DONE]`."""
    response = web.StreamResponse(
        status=answer.status,
        headers={
            **headers,
            "Content-Type": answer.content_type,
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
        },
    )
    await response.prepare(http)
    events = WholeEvents()
    try:
        async for chunk in answer.chunks:
            if whole := events.cut(chunk):
                await response.write(whole)
        if rest := events.rest():
            await response.write(rest)
    except HeadgateError as error:
        await response.write(error_event(error))
    await response.write_eof()
    return response


def _printable(group: str) -> str:
    """Return the name of a group, safe for every log and limited in length."""
    group = group[:_GROUP_CHARS]
    return group if group.isascii() else group.encode("utf-8", "replace").decode()


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _PASSED_ON if name in headers}


MOST_HELD_BYTES: Final = 1024 * 1024
"""Longer events are passed on in parts."""


class WholeEvents:
    """Cuts a stream at the ends of events. Nearly every chunk consists of whole events, and is passed on as it is."""

    def __init__(self) -> None:
        self._held = bytearray()

    def cut(self, chunk: bytes) -> bytes:
        """Return what may be passed on: everything up to the end of the last whole event."""
        if not self._held and chunk.endswith(b"\n\n"):
            return chunk
        seen = max(0, len(self._held) - 3)  # an end mark may have begun in the last 3 bytes, but not before them
        self._held += chunk
        ends = ((self._held.rfind(mark, seen), len(mark)) for mark in (b"\n\n", b"\r\n\r\n"))
        end = max(place + length if place >= 0 else 0 for place, length in ends)
        if not end and len(self._held) > MOST_HELD_BYTES:
            end = len(self._held)
        whole = bytes(self._held[:end])
        del self._held[:end]
        return whole

    def rest(self) -> bytes:
        """Return the remaining bytes at the end of a stream that did not break."""
        rest, self._held = bytes(self._held), bytearray()
        return rest
