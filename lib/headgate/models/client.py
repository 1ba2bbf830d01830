"""The model client: one attempt of one OpenAI-compatible chat request, bounded in time and size."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final, Self

import aiohttp
import orjson
from aiohttp.abc import AbstractCookieJar

from headgate import __version__
from headgate.core import COUNTS, ChatError, ChatReply, Clock, ErrorKind, Message, Model, SystemClock, redacted
from headgate.core.rates import RateNote
from headgate.environments import NativeForm, tool_forms
from headgate.models.answer import (
    SHOWN_CHARS,
    Answer,
    StreamedAnswer,
    failure_of_status,
    read_completion,
    too_long,
)
from headgate.models.rate_headers import lasting, rate_notes
from headgate.models.wire import TASK_HEADER, TASK_HEADER_OPTION
from headgate.net.connector import READ_BUFFER_BYTES, Connector

KEEPALIVE_S: Final = 4.0
"""Below the 5 s after which llama.cpp, uvicorn and Node close an idle connection."""


def failure_of_exception(error: aiohttp.ClientError | OSError, *, was_answered: bool, deadline_s: float) -> ChatError:
    """Return the error for a transport failure, classified by exception type and never by message.

    A failure before the answer began is one of the connection (refused, reset, DNS, TLS, connect timeout). An answer
    that was cut short, or that is not HTTP, is the provider's failure.
    """
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):  # a connect timeout is both
        return ChatError(ErrorKind.PROVIDER_TIMEOUT, f"no whole answer within {deadline_s:g} s")
    if isinstance(error, aiohttp.InvalidURL):
        kind = ErrorKind.BAD_REQUEST
    elif isinstance(error, aiohttp.ClientConnectionError | OSError) and not was_answered:
        kind = ErrorKind.CONNECTION
    else:
        kind = ErrorKind.PROVIDER_FAILURE
    # The text of a ClientResponseError is safe; its repr contains the request's headers, and so the key.
    said = f": {error}" if str(error) else ""
    return ChatError(kind, redacted(f"{type(error).__name__}{said}", limit_chars=SHOWN_CHARS))


class Connections:
    """The HTTP sessions that all models of a campaign share. Open it with `async with`.

    `pooled` keeps connections alive between requests. `fresh` opens a new one for each request: it resends a request
    whose kept connection turns out to have been closed by the server.
    """

    def __init__(self, *, connect_s: float, use_environment_proxy: bool) -> None:
        self._connect_s = connect_s
        self._use_environment_proxy = use_environment_proxy
        self._stack = AsyncExitStack()
        self.pooled: aiohttp.ClientSession
        self.fresh: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self.pooled = await self._session(keepalive_timeout=KEEPALIVE_S)
        self.fresh = await self._session(force_close=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _session(self, **options: Any) -> aiohttp.ClientSession:
        jar: AbstractCookieJar = aiohttp.DummyCookieJar()  # a cookie of one model must not reach another
        return await self._stack.enter_async_context(
            aiohttp.ClientSession(
                # No limit here: request admission and `max_parallel` bound the requests in flight.
                connector=Connector(**options),
                read_bufsize=READ_BUFFER_BYTES,
                cookie_jar=jar,
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s, sock_connect=self._connect_s),
                trace_configs=[_note_reuse()],
                trust_env=self._use_environment_proxy,
                headers={"User-Agent": f"headgate/{__version__}"},
            )
        )


class Journey:
    """What happened to one request in transit: whether it was sent on a reused connection."""

    __slots__ = ("was_reused",)

    def __init__(self) -> None:
        self.was_reused = False


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytearray:
    """Return the body, or its first `limit` bytes; if it is longer, the connection is closed with the rest unread."""
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) >= limit:
            del body[limit:]
            response.close()
            break
    return body


def _note_reuse() -> aiohttp.TraceConfig:
    async def reused(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        if isinstance(context.trace_request_ctx, Journey):
            context.trace_request_ctx.was_reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    return trace


_MAX_ERROR_BODY_BYTES: Final = 64 * 1024

STREAM_BYTES_PER_S: Final = 2**20
"""Maximum read rate of one stream after its first `STREAM_BURST_BYTES`: reading takes time from all other models. The
fastest models send 3,000 tokens per second, in 250 bytes each."""

STREAM_BURST_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How long and how much one attempt may take.

    Attributes:
        deadline_s: from sending the request to the end of the answer.
        stream: ask for server-sent events; a model's option `stream` overrides it.
        first_token_s: when streaming, maximum wait for the first token.
        idle_s: when streaming, maximum gap between two arrivals after the first token.
        max_reply_bytes: reading stops, and the attempt fails, beyond this size.
        use_environment_proxy: go through HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
    """

    deadline_s: float = 120.0
    connect_s: float = 10.0
    stream: bool = False
    first_token_s: float = 60.0
    idle_s: float = 60.0
    max_reply_bytes: int = 8 * 1024 * 1024
    use_environment_proxy: bool = False


class ChatClient:
    """Sends chat requests. One per campaign, shared by all models; open it with `async with`.

    It never retries a request that an endpoint refused or failed: that is the executor's decision. It only replaces,
    once and silently, a kept connection that the server has closed in the meantime.
    """

    def __init__(self, settings: ClientSettings | None = None, *, clock: Clock | None = None) -> None:
        self.settings = settings or ClientSettings()
        self._clock = clock or SystemClock()
        self.connections = self._connections = Connections(
            connect_s=self.settings.connect_s, use_environment_proxy=self.settings.use_environment_proxy
        )
        self._trials = ToolTrials()

    async def __aenter__(self) -> Self:
        await self._connections.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.__aexit__()

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        """Return the reply to one attempt; tools are sent in the form that the endpoint accepts (`ToolTrials`).

        Args:
            model: the model to ask; its options become fields of the request.
            messages: the conversation so far.
            task_header: names the task; sent only to models whose option `headgate_task_header` is true.

        Raises:
            ChatError: for every failure of the endpoint, classified by status or exception type, secrets redacted.
        """

        async def send(native: NativeForm | None) -> tuple[ChatReply, int]:
            return await self._attempt(_Attempt(model, messages, task_header, self.settings, self._clock, native))

        return await self._trials.ask(model, messages, send)

    async def _attempt(self, attempt: _Attempt) -> tuple[ChatReply, int]:
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                return await self._send(attempt)
        except (aiohttp.ClientError, OSError) as error:
            deadline_s = self.settings.deadline_s
            failed = failure_of_exception(error, was_answered=attempt.was_answered, deadline_s=deadline_s)
        raise failed  # outside of `except`: the transport's exceptions carry request headers, and so the key

    async def _send(self, attempt: _Attempt) -> tuple[ChatReply, int]:
        journey = Journey()
        try:
            return await attempt.run(self._connections.pooled, journey)
        except aiohttp.ClientConnectionError:
            # A server may close a kept connection just as a request is sent on it.
            if not journey.was_reused or attempt.was_answered:
                raise
        return await attempt.run(self._connections.fresh, Journey())


class _Attempt:
    """One request and its answer."""

    def __init__(
        self,
        model: Model,
        messages: Sequence[Message],
        task_header: str | None,
        settings: ClientSettings,
        clock: Clock,
        native: NativeForm | None,
    ) -> None:
        options = dict(model.options)
        self._settings = settings
        self._clock = clock
        self._streams = bool(options.get("stream", settings.stream))
        self._url = f"{model.base_url.rstrip('/')}/chat/completions"
        self._headers = _headers(model, task_header if options.get(TASK_HEADER_OPTION) is True else None)
        self._body = request_body(model, messages, options, streams=self._streams, native=native)
        self._began = clock.monotonic()
        self._first_token_s: float | None = None
        self._told: tuple[RateNote, ...] = ()
        self.was_answered = False

    async def run(self, session: aiohttp.ClientSession, journey: Journey) -> tuple[ChatReply, int]:
        patience_s = self._settings.first_token_s if self._streams else None
        try:
            async with (
                asyncio.timeout(patience_s) as patience,
                session.post(
                    self._url, data=self._body, headers=self._headers, allow_redirects=False, trace_request_ctx=journey
                ) as response,
            ):
                self.was_answered = True
                answer = await self._read(response, patience)
        except TimeoutError:
            if patience.expired():
                raise self._lost_patience() from None
            raise
        reply = answer.reply(self._clock.monotonic() - self._began, first_token_s=self._first_token_s)
        return replace(reply, told=self._told) if self._told else reply, answer.calls

    async def _read(self, response: aiohttp.ClientResponse, patience: asyncio.Timeout) -> Answer:
        if not 200 <= response.status < 300:
            body = await read_up_to(response, _MAX_ERROR_BODY_BYTES)
            raise failure_of_status(response.status, body, response.headers, self._clock.wall())
        self._told = rate_notes(response.headers, self._clock.wall())
        # Some servers answer in one piece although the request asks for a stream.
        if self._streams and response.content_type != "application/json":
            answer = await self._read_stream(response, patience)
            self._told = lasting(self._told)
            return answer
        patience.reschedule(None)
        body = await read_up_to(response, self._settings.max_reply_bytes + 1)
        if len(body) > self._settings.max_reply_bytes:
            raise too_long(self._settings.max_reply_bytes)
        return read_completion(body)

    async def _read_stream(self, response: aiohttp.ClientResponse, patience: asyncio.Timeout) -> Answer:
        loop = asyncio.get_running_loop()
        streamed = StreamedAnswer(self._settings.max_reply_bytes)
        ahead, read_at = 0.0, self._clock.monotonic()
        async for data in response.content.iter_any():
            streamed.feed(data)
            if streamed.is_done:
                break
            now = self._clock.monotonic()
            ahead, read_at = max(0.0, ahead - (now - read_at) * STREAM_BYTES_PER_S) + len(data), now
            if ahead > STREAM_BURST_BYTES:
                await self._clock.sleep((ahead - STREAM_BURST_BYTES) / STREAM_BYTES_PER_S)
            if streamed.has_begun:
                if self._first_token_s is None:
                    self._first_token_s = self._clock.monotonic() - self._began
                patience.reschedule(loop.time() + self._settings.idle_s)
        return streamed.finish()

    def _lost_patience(self) -> ChatError:
        if self._first_token_s is None:
            said = f"no token within {self._settings.first_token_s:g} s"
        else:
            said = f"the stream stalled for {self._settings.idle_s:g} s"
        return ChatError(ErrorKind.PROVIDER_TIMEOUT, said)


def _headers(model: Model, task_header: str | None) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        # Answers are small; accepting compression would only allow decompression bombs.
        "Accept-Encoding": "identity",
    }
    if model.api_key:
        headers["Authorization"] = f"Bearer {model.api_key.reveal()}"
    if task_header is not None:
        headers[TASK_HEADER] = task_header
    return headers


def request_body(
    model: Model,
    messages: Sequence[Message],
    options: Mapping[str, Any],
    *,
    streams: bool,
    native: NativeForm | None = None,
) -> bytes:
    """Return the body of a chat request: the model's options and the fields that Headgate sets.

    With `native`, the conversation's tools are in fields; otherwise they are text.
    """
    fields: dict[str, Any] = {name: value for name, value in options.items() if not name.startswith("headgate_")}
    if fields.get("seed", 0) is None:  # a roster's way to send no seed
        del fields["seed"]
    fields["model"] = model.request_name
    if native is None:
        fields["messages"] = [{"role": message.role, "content": message.content} for message in messages]
    else:
        fields |= {"messages": native.messages, "tools": native.tools}
        fields.setdefault("parallel_tool_calls", False)
    if streams:
        fields["stream"] = True
        fields.setdefault("stream_options", {"include_usage": True})
    return orjson.dumps(fields)


Send = Callable[[tool_forms.NativeForm | None], Awaitable[tuple[ChatReply, int]]]
"""Sends a conversation, as text or with its tools in fields; returns the reply and the number of calls in its field."""


class ToolTrials:
    """Asks models in the form in which they accept tools. Owned by the sender of the requests.

    The first conversation with tools tries the field `tools`. If the endpoint refuses it or replies without a call in
    the field, the conversation is sent again as text, and that reply counts; later ones are always sent as text.
    """

    def __init__(self) -> None:
        self._takes_fields: dict[str, bool] = {}
        self._unbooked = defaultdict[str, list[ChatReply]](list)

    async def ask(self, model: Model, messages: Sequence[Message], send: Send) -> ChatReply:
        """Return the reply to `messages`; its tokens and its bill include the cost of a trial.

        If the request as text fails, that cost is in the model's next reply to a text.

        Raises:
            ChatError: as `send` does; after a refused trial, the error of the request as text.
        """
        key = model.key
        is_text = model.tools == "text" or self._takes_fields.get(key) is False or "tools" in dict(model.options)
        native = None if is_text else tool_forms.native_form(messages)
        if native is not None and (model.tools == "native" or key in self._takes_fields):
            return (await send(native))[0]
        unbooked = self._unbooked[key]
        tried = unbooked.pop() if native is None and unbooked else None
        if native is not None:
            try:
                tried, calls = await send(native)
            except ChatError as error:
                # Some servers report a field that they refuse as a server error.
                is_failure = (error.status or 0) >= 500 and "tool" in str(error).lower()
                if error.kind is not ErrorKind.BAD_REQUEST and not is_failure:
                    raise
            else:
                if calls or self._takes_fields.get(key):
                    self._takes_fields[key] = True
                    return tried
                self._takes_fields[key] = False  # from now on, or a failure of the text would have the trial paid again
        try:
            reply, _ = await send(None)
        except BaseException:
            unbooked.extend(filter(None, [tried]))
            raise
        if native is not None:
            self._takes_fields.setdefault(key, False)
        if tried is None:
            return reply
        bills = (tried.billed_micro, reply.billed_micro)
        return replace(
            reply,
            **{name: getattr(tried, name) + getattr(reply, name) for name in COUNTS},
            billed_micro=None if None in bills else sum(filter(None, bills)),
        )
