"""What an endpoint answered: OpenAI chat completions, whole or as server-sent events, read with suspicion."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

from headgate.core import ChatError, ChatReply, ErrorKind, Halves, json_value, masked, redacted, storable
from headgate.environments import tool_forms
from headgate.models.rate_headers import rate_notes, refusal_notes

MAX_RETRY_AFTER_S: Final = 3600.0
"""Longer demands are cut to an hour: beyond it a provider is down, and the model's error pause takes over."""

_NUMBER: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*", re.ASCII)
SHOWN_CHARS: Final = 300
"""Of an error, what is told."""


_USED_UP: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}  # OpenAI and those who follow it
    | {"insufficient_user_quota", "exceeded_current_quota_error"}  # One API, Moonshot
)
"""Codes and types of errors that say that the account behind a key has no quota left."""

_OF_A_DAY: Final = re.compile(r"per[ _-]?day", re.IGNORECASE)
"""How a refusal for a rate names a limit per day; without a `Retry-After` it may last for hours."""


def kind_of_status(status: int, *names: object) -> ErrorKind:
    """Return the error kind of an HTTP status that is not 2xx, and of the code and type that the error has."""
    match status:
        case 402:
            return ErrorKind.QUOTA
        case _ if 400 <= status < 500 and any(isinstance(name, str) and name in _USED_UP for name in names):
            return ErrorKind.QUOTA
        case 429:
            return ErrorKind.RATE_LIMITED
        case 408:
            return ErrorKind.PROVIDER_TIMEOUT
        case 401 | 403:
            return ErrorKind.AUTH
        case _ if 300 <= status < 500:
            return ErrorKind.BAD_REQUEST
        case _:
            return ErrorKind.PROVIDER_FAILURE


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return how long the provider asks to wait, in [0, `MAX_RETRY_AFTER_S`] seconds; None when it does not say.

    `retry-after-ms` goes before `Retry-After`, which holds seconds or an HTTP date (RFC 9110, 10.2.3). A date counts
    from the answer's own `Date` where it has one, so that a provider's clock may differ from ours. What cannot be read,
    is negative, or lies in the past is as if it were absent.

    Args:
        headers: of the answer; looked up without regard to case.
        now: wall time, seconds since the epoch.
    """
    told = {name.lower(): value for name, value in headers.items()}
    in_ms = _number(told.get("retry-after-ms"))
    if in_ms is not None:
        return min(in_ms / 1000, MAX_RETRY_AFTER_S)
    asked = told.get("retry-after")
    if asked is None:
        return None
    in_s = _number(asked)
    if in_s is None:
        until = _http_date(asked)
        if until is None:
            return None
        in_s = until - (_http_date(told.get("date", "")) or now)
    return min(in_s, MAX_RETRY_AFTER_S) if in_s >= 0 else None


def failure_of_status(status: int, body: bytes | bytearray, headers: Mapping[str, str], now: float) -> ChatError:
    """Return the error that an answer with a status other than 2xx stands for."""
    told, asked_s = rate_notes(headers, now), retry_after_s(headers, now)
    whole, names = _said(body)
    said = redacted(whole, limit_chars=SHOWN_CHARS)
    kind = kind_of_status(status, *names)
    if kind is ErrorKind.RATE_LIMITED and asked_s is None and _OF_A_DAY.search(whole):
        kind = ErrorKind.QUOTA
    advice = "; it redirects, which is not followed: name the final address as base_url" if 300 <= status < 400 else ""
    if kind is ErrorKind.QUOTA:
        advice = "; its quota is used up"
    return ChatError(
        kind,
        f"HTTP {status}{advice}" + (f": {said}" if said else ""),
        status=status,
        retry_after_s=asked_s,
        told=refusal_notes(whole, told) if status == 429 else told,
    )


def _number(text: str | None) -> float | None:
    found = _NUMBER.fullmatch(text or "")
    return float(found[1]) if found else None


def _http_date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        stamp = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return stamp if math.isfinite(stamp) else None


def _said(body: bytes | bytearray) -> tuple[str, tuple[object, object]]:
    """Return the message inside an error body as providers shape it, with its code and type, else the beginning."""
    try:
        parsed = json_value(body)
    except orjson.JSONDecodeError:
        return body[: SHOWN_CHARS * 4].decode("utf-8", "replace").strip(), (None, None)
    inner = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    message, names = inner, (None, None)
    if isinstance(inner, dict):
        message, names = inner.get("message", inner), (inner.get("code"), inner.get("type"))
    return message if isinstance(message, str) else orjson.dumps(message).decode(), names


_DONE: Final = b"[DONE]"
_MAX_NAME_CHARS: Final = 200

_MAX_TOKENS: Final = 2**40
"""A count beyond this is nonsense; it would overflow sums in the store."""

_MOST_BILLED: Final = 10_000.0
"""Of any currency: a million tokens of the dearest models cost a tenth of it."""

MOST_LINES: Final = 2**19
"""Of one stream: two for an event, of which the longest answers have one for each of their 128k tokens."""

BYTES_FOR_EACH: Final = 8
"""A stream may be so many times as long as the longest text: each token comes in some 250 bytes of JSON."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint said: its text, what it counted and billed, and who it says it is.

    Calls of tools that came in a field of their own are text, too; `calls` is how many these were.
    """

    said: ChatReply
    calls: int = 0

    def reply(self, latency_s: float, *, first_token_s: float | None = None, lane: str = "now") -> ChatReply:
        """Return it as the reply of an attempt that took so long, without what looks like a secret."""
        text = masked(self.said.text)  # from here it goes to environments, judges and the store
        return replace(self.said, text=text, latency_s=latency_s, first_token_s=first_token_s, lane=lane)


def read_completion(body: bytes | bytearray) -> Answer:
    """Return the answer in the body of a completion.

    An empty content is an empty text, the model's own doing. Anything that is no completion at all (not UTF-8, not
    JSON, no choices) is the provider's failure.

    Raises:
        ChatError: PROVIDER_FAILURE, or the kind that an error object inside a 200 answer names by its code.
    """
    document = _document(body, "replaced")
    choice = _first_choice(document)
    if choice is None:
        raise _garbage("a completion without choices", body)
    _refuse_failed_choice(choice)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise _garbage("a choice without a message", body)
    calls = tool_forms.calls_in(message.get("tool_calls"))
    return _answer(_text_of(message), document.get("usage"), document, calls, choice.get("finish_reason"))


@dataclass(slots=True)
class _Call:
    id: object = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class StreamedCalls:
    """The calls of tools in one stream, put together from their pieces. One instance per stream.

    A piece is of the call with its `index`; one without is of the last call, and another `id` begins a new one, as
    servers that stream whole calls have it.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    def feed(self, pieces: object) -> int:
        """Take the `tool_calls` of a delta; return how many characters of calls these were."""
        taken = 0
        for piece in pieces if isinstance(pieces, list) else ():
            function = piece.get("function") if isinstance(piece, dict) else None
            if not isinstance(function, dict):
                continue
            call = self._call_of(piece.get("index"), piece.get("id"))
            name, arguments = function.get("name"), function.get("arguments")
            if isinstance(name, str):
                call.name = call.name or name
            if isinstance(arguments, dict):
                arguments = json.dumps(arguments, ensure_ascii=False)  # unlike orjson, with halves of characters
            if isinstance(arguments, str):
                call.arguments.append(arguments)
                taken += len(arguments)
            taken += 1
        return taken

    def whole(self) -> list[tuple[str, object]]:
        """Return names and arguments of the calls; what names nothing is no call."""
        return [(storable(call.name), storable("".join(call.arguments))) for call in self._calls if call.name]

    def _call_of(self, index: object, call_id: object) -> _Call:
        place = index if type(index) is int else max(len(self._calls) - 1, 0)
        call = self._at.get(place)
        if call is None or (call_id and call.id and call_id != call.id):
            call = self._at[place] = _Call()
            self._calls.append(call)
        call.id = call.id or call_id
        return call


@dataclass(slots=True)
class StreamedAnswer:
    """The answer in a stream of server-sent events, fed as the bytes arrive. One instance per attempt.

    Attributes:
        max_chars: a longer text, or a longer line, is refused, and a stream of `BYTES_FOR_EACH` times as many bytes.
        received: bytes so far.
        has_begun: True once a token of the answer has come.
        is_done: True once the endpoint said that nothing follows.
    """

    max_chars: int
    has_begun: bool = False
    is_done: bool = False
    received: int = 0
    _pieces: list[str] = field(default_factory=list)
    _calls: StreamedCalls = field(default_factory=StreamedCalls)
    _chars: int = 0
    _lines: int = 0
    _rest: bytearray = field(default_factory=bytearray)
    _usage: object = None
    _last: dict[str, Any] = field(default_factory=dict)
    _finish: object = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream.

        Raises:
            ChatError: PROVIDER_FAILURE for what is no completion chunk, BAD_ANSWER for an answer that is too long.
        """
        self.received += len(data)
        if self.received > self.max_chars * BYTES_FOR_EACH:
            raise too_long(self.max_chars * BYTES_FOR_EACH)
        end = data.rfind(b"\n") + 1
        if end:
            lines, self._rest = (self._rest + data[: end - 1]).split(b"\n"), bytearray()
            self._lines += len(lines)
            if self._lines > MOST_LINES:
                raise too_long(MOST_LINES, "lines")
            for payload in _payloads(lines):
                self._take(payload)
        self._rest += data[end:]  # not looked at again until the line's end has come
        if len(self._rest) > self.max_chars:
            raise too_long(self.max_chars)

    def finish(self) -> Answer:
        """Return the whole answer after the stream's end.

        Raises:
            ChatError: PROVIDER_FAILURE when no chunk gave a finish reason: the stream was cut.
        """
        rest, self._rest = self._rest, bytearray()
        for payload in _payloads([rest]):
            self._take(payload)
        if self._finish is None:
            raise ChatError(
                ErrorKind.PROVIDER_FAILURE, f"the stream ended without a finish reason after {self._chars} characters"
            )
        return _answer(storable("".join(self._pieces)), self._usage, self._last, self._calls.whole(), self._finish)

    def _take(self, payload: bytearray) -> None:
        if payload == _DONE:
            self.is_done = True
            return
        chunk = _document(payload, "kept")  # a server may cut a text within a character
        self._usage = chunk.get("usage") or self._usage
        if chunk.get("model"):
            self._last = chunk
        choice = _first_choice(chunk)
        if choice is None:  # the last chunk carries the usage alone
            return
        _refuse_failed_choice(choice)
        if choice.get("finish_reason") is not None:
            self._finish = choice["finish_reason"]
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        text = _text_of(delta)
        called = self._calls.feed(delta.get("tool_calls"))
        self.has_begun = self.has_begun or bool(text) or bool(called) or bool(delta.get("reasoning_content"))
        self._chars += len(text) + called
        if self._chars > self.max_chars:
            raise too_long(self.max_chars)
        self._pieces.append(text)


def too_long(limit: int, of: str = "bytes") -> ChatError:
    """Return the error of an answer that was not read to its end."""
    return ChatError(ErrorKind.BAD_ANSWER, f"the answer is larger than {limit} {of}; the rest was not read")


def _payloads(lines: list[bytearray]) -> Iterator[bytearray]:
    # Lines without it are comments, event names and blank ones.
    return filter(None, (line[5:].strip() for line in lines if line.startswith(b"data:")))


def _document(body: bytes | bytearray, halves: Halves) -> dict[str, Any]:
    try:
        # With the 20 likeliest tokens, an answer has 200 values for each that was chosen.
        document = json_value(body, most_values=2**20, halves=halves)
    except orjson.JSONDecodeError:
        document = None  # raised below: the decoder's exception would keep the whole body alive
    if not isinstance(document, dict):
        raise _garbage("an answer that is not a JSON object in UTF-8", body)
    if (error := document.get("error")) is not None:
        raise _stated_failure(error)
    return document


def _stated_failure(error: object) -> ChatError:
    """Return the failure that routers report inside an answer with status 200; its code is a status by their custom."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    kind = kind_of_status(status) if status else ErrorKind.PROVIDER_FAILURE
    said = error.get("message") if isinstance(error, dict) else error
    return ChatError(kind, redacted(f"error in a 200 answer: {said}", limit_chars=300), status=status)


def _first_choice(document: dict[str, Any]) -> dict[str, Any] | None:
    match document.get("choices"):
        case [dict() as choice, *_]:
            return choice
        case _:
            return None


def _refuse_failed_choice(choice: dict[str, Any]) -> None:
    if choice.get("finish_reason") == "error" or choice.get("error") is not None:
        raise _stated_failure(choice.get("error") or {"message": "finish_reason is 'error'"})


def _text_of(message: dict[str, Any]) -> str:
    match message.get("content"):
        case str() as text:
            return text
        case list() as parts:
            return "".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))
        case _:
            refusal = message.get("refusal")
            return refusal if isinstance(refusal, str) else ""


def _answer(
    text: str, usage: object, document: dict[str, Any], calls: Sequence[tuple[str, object]], finish: object
) -> Answer:
    counts = usage if isinstance(usage, dict) else {}
    prompt, completion = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))
    cached = _first_count(
        _part_of(counts, "prompt_tokens_details", "cached_tokens"),  # OpenAI, vLLM, SGLang, OpenRouter
        counts.get("prompt_cache_hit_tokens"),  # DeepSeek
        counts.get("cache_read_input_tokens"),  # Anthropic, behind a proxy
    )
    thoughts = _first_count(
        _part_of(counts, "completion_tokens_details", "reasoning_tokens"), counts.get("reasoning_tokens")
    )
    beside = _count(counts.get("total_tokens")) - prompt - completion
    is_cached = cached or any(_count(value) for name, value in counts.items() if "cache" in name)
    if prompt and beside > 0 and (beside == thoughts or not (thoughts or is_cached)):
        # xAI counts thoughts beside the completion, Gemini in the total alone; some count what they cache beside, too.
        completion, thoughts = completion + beside, beside if completion else thoughts
    said = ChatReply(
        tool_forms.text_with_calls(text, calls) if calls else text,
        prompt,
        completion,
        served_model=_name(document.get("model")),
        system_fingerprint=_name(document.get("system_fingerprint")),
        cached_tokens=cached if cached <= prompt else 0,
        reasoning_tokens=thoughts if thoughts <= completion else 0,
        billed_micro=_billed(counts.get("cost")),
        finish_reason=_name(finish),
    )
    return Answer(said, len(calls))


def _part_of(counts: dict[str, Any], details: str, name: str) -> object:
    inner = counts.get(details)
    return inner.get(name) if isinstance(inner, dict) else None


def _first_count(*values: object) -> int:
    """Return the first that counts something."""
    return next(filter(None, map(_count, values)), 0)


def _billed(cost: object) -> int | None:
    """Return the cost in an answer's usage (OpenRouter's) in millionths; None for what no answer can have cost."""
    if not isinstance(cost, int | float) or isinstance(cost, bool) or not 0 <= cost <= _MOST_BILLED:
        return None
    return round(cost * 1_000_000)


def _name(value: object) -> str:
    """Return a name that an endpoint gave; one that is no text, or far too long, is none."""
    return masked(storable(value)) if isinstance(value, str) and len(value) <= _MAX_NAME_CHARS else ""


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else 0


def _garbage(what: str, body: bytes | bytearray) -> ChatError:
    begin = redacted(bytes(body[:80]).decode("utf-8", "backslashreplace"), limit_chars=120)
    return ChatError(ErrorKind.PROVIDER_FAILURE, f"{what}: {begin!r}" if begin else f"{what}: it is empty")
