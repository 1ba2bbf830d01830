from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import ChatError, ChatReply, ErrorKind
from headgate.models.answer import Answer, StreamedAnswer, read_completion
from tests.models.raw_server import completion


def chunk(text: str | None = None, *, finish: str | None = None, **fields: object) -> bytes:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"choices": [choice], **fields}) + b"\n\n"


def message(**fields: object) -> bytes:
    return orjson.dumps({"choices": [{"message": {"role": "assistant", **fields}}]})


def test_a_completion_gives_its_text_and_tokens() -> None:
    body = completion("four", usage={"prompt_tokens": 9, "completion_tokens": 1})
    assert read_completion(body) == Answer(ChatReply("four", 9, 1, finish_reason="stop"))


@pytest.mark.parametrize(
    "body",
    [
        message(content=None),
        message(content=""),
        message(),
        message(content=[]),
        message(content=None, tool_calls=[{"type": "function"}]),
    ],
)
def test_an_answer_without_words_is_an_empty_text_not_an_error(body: bytes) -> None:
    assert read_completion(body).said.text == ""


def test_text_in_parts_is_joined_and_a_refusal_is_the_text_of_an_answer_without_one() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert read_completion(message(content=parts)).said.text == "ab"
    assert read_completion(message(content=None, refusal="I will not.")).said.text == "I will not."


DETAILS = {"prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 30}}


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        (DETAILS, (60, 30, None)),
        ({"prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40}, (60, 0, None)),
        ({"cache_read_input_tokens": 60, "prompt_tokens_details": None}, (60, 0, None)),
        ({"cost": 0.0125}, (0, 0, 12_500)),
        ({"cost": 0}, (0, 0, 0)),
        ({"prompt_tokens_details": {"cached_tokens": 101}}, (0, 0, None)),
        ({"completion_tokens_details": {"reasoning_tokens": 51}}, (0, 0, None)),
        ({"prompt_tokens_details": {"cached_tokens": -1}, "completion_tokens_details": [30]}, (0, 0, None)),
        ({"prompt_tokens_details": {"cached_tokens": 6.5}, "prompt_cache_hit_tokens": "60"}, (0, 0, None)),
        ({"cost": -1}, (0, 0, None)),
        ({"cost": True}, (0, 0, None)),
        ({"cost": "0.1"}, (0, 0, None)),
        ({"cost": 1e300}, (0, 0, None)),
    ],
)
def test_cached_tokens_thoughts_and_the_bill_are_read_from_the_usage_and_nonsense_is_not(
    usage: dict[str, object], found: tuple[int, int, int | None]
) -> None:
    answer = read_completion(completion("x", usage={"prompt_tokens": 100, "completion_tokens": 50} | usage)).said
    assert (answer.cached_tokens, answer.reasoning_tokens, answer.billed_micro) == found
    assert (answer.prompt_tokens, answer.completion_tokens) == (100, 50)


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"total_tokens": 180} | DETAILS, (80, 30)),
        ({"total_tokens": 950}, (850, 800)),
        ({"total_tokens": 180, "completion_tokens": None}, (80, 0)),
        ({"total_tokens": 150}, (50, 0)),
        ({"total_tokens": 90}, (50, 0)),
        ({"total_tokens": 950, "cache_creation_input_tokens": 800}, (50, 0)),
        ({"total_tokens": 950, "prompt_tokens_details": {"cached_tokens": 60}}, (50, 0)),
        ({"total_tokens": 950, "prompt_tokens": None}, (50, 0)),
    ],
)
def test_thoughts_that_are_counted_beside_the_completion_are_counted_with_it(
    usage: dict[str, object], found: tuple[int, int]
) -> None:
    answer = read_completion(completion("x", usage={"prompt_tokens": 100, "completion_tokens": 50} | usage)).said
    assert (answer.completion_tokens, answer.reasoning_tokens) == found


@pytest.mark.parametrize(
    "usage",
    [None, 3, {"prompt_tokens": -1, "completion_tokens": True}, {"prompt_tokens": 2**60, "completion_tokens": "9"}],
)
def test_nonsense_token_counts_are_zero(usage: object) -> None:
    assert read_completion(completion("x", usage=usage)) == Answer(ChatReply("x", finish_reason="stop"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b'{"choices":[]}',
        b'{"choices":[null]}',
        b'{"choices":{}}',
        b'{"choices":[{}]}',
        b'{"object":"chat.completion"}',
        completion("x").replace(b'"x"', b'"\xff\xfe"'),
        completion("x")[:-5],
        b"[" * 100_000,
    ],
)
def test_what_is_no_completion_is_the_provider_s_failure(body: bytes) -> None:
    with pytest.raises(ChatError) as caught:
        read_completion(body)
    assert caught.value.kind is ErrorKind.PROVIDER_FAILURE
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": 429, "message": "slow down"}, ErrorKind.RATE_LIMITED, 429),
        ({"code": 401, "message": "no"}, ErrorKind.AUTH, 401),
        ({"code": "oops", "message": "upstream"}, ErrorKind.PROVIDER_FAILURE, None),
        ("upstream", ErrorKind.PROVIDER_FAILURE, None),
    ],
)
def test_an_error_inside_a_200_answer_counts_by_its_code(error: object, kind: ErrorKind, status: int | None) -> None:
    for read in (
        lambda: read_completion(orjson.dumps({"error": error})),
        lambda: streamed(b"data: " + orjson.dumps({"error": error}) + b"\n"),
    ):
        with pytest.raises(ChatError) as caught:
            read()
        assert (caught.value.kind, caught.value.status) == (kind, status)


def test_a_choice_that_ended_in_error_is_the_provider_s_failure() -> None:
    body = completion("half an ans").replace(b'"stop"', b'"error"')
    with pytest.raises(ChatError) as caught:
        read_completion(body)
    assert caught.value.kind is ErrorKind.PROVIDER_FAILURE


def streamed(data: bytes, step: int = 7, limit: int = 10_000) -> Answer:
    answer = StreamedAnswer(limit)
    for start in range(0, len(data), step):
        answer.feed(data[start : start + step])
    return answer.finish()


@given(st.text(max_size=50), st.integers(1, 200))
def test_a_stream_gives_the_same_text_however_it_is_cut_into_packets(text: str, step: int) -> None:
    events = b": ping\n\n" + b"".join(chunk(letter) for letter in text) + chunk(finish="stop")
    events += b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\ndata: [DONE]\n\n'
    assert streamed(events, step) == Answer(ChatReply(text, 3, 4, finish_reason="stop"))
    assert streamed(events.replace(b"\n", b"\r\n"), step) == Answer(ChatReply(text, 3, 4, finish_reason="stop"))


def escaped(text: str) -> bytes:
    """Return the completion with `text`, halves of characters written as escapes."""
    answered = {"model": "m\ud800", "choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    return json.dumps(answered).encode()


def test_half_a_character_in_a_text_is_replaced_and_everything_else_stays() -> None:
    answer = read_completion(escaped("caf\u00e9 \ud83d\ude00 \ud800 \\ud800"))
    assert (answer.said.text, answer.said.served_model) == ("caf\u00e9 \U0001f600 \ufffd \\ud800", "m\ufffd")
    with pytest.raises(ChatError, match="not a JSON object"):
        read_completion(escaped("\ud800") + b"}")


def test_a_stream_that_cuts_a_text_within_a_character_is_put_together_again() -> None:
    deltas = [{"content": "grin \ud83d"}, {"content": "\ude00, half \ud800"}, {"content": "."}]
    data = b"".join(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n" for delta in deltas)
    assert streamed(data + chunk(finish="stop")).said.text == "grin \U0001f600, half \ufffd."


def test_half_a_character_in_a_call_is_replaced() -> None:
    whole = {"tool_calls": [{"function": {"name": "look", "arguments": {"at": "\ud800"}}}]}
    choices = [{"message": whole, "delta": whole, "finish_reason": "tool_calls"}]
    body = json.dumps({"choices": choices}).encode()
    for answer in (read_completion(body), streamed(b"data: " + body + b"\n\n")):
        assert answer.said.text == '<tool_call>{"name":"look","arguments":{"at":"\ufffd"}}</tool_call>'


def test_a_stream_without_done_or_last_newline_is_whole_once_it_gave_a_finish_reason() -> None:
    assert streamed((chunk("a") + chunk("b", finish="length")).rstrip()) == Answer(
        ChatReply("ab", finish_reason="length")
    )


@pytest.mark.parametrize("tail", [b"", b"data: [DONE]\n\n"])
def test_a_stream_without_a_finish_reason_was_cut(tail: bytes) -> None:
    with pytest.raises(ChatError) as caught:
        streamed(chunk("half an ans") + tail)
    assert caught.value.kind is ErrorKind.PROVIDER_FAILURE
    assert "finish reason" in str(caught.value)


@pytest.mark.parametrize("data", [chunk("abc") * 5, b"data: " + b"x" * 50])
def test_a_stream_beyond_the_limit_is_a_bad_answer(data: bytes) -> None:
    with pytest.raises(ChatError) as caught:
        streamed(data, step=1000 if b"abc" in data else 10, limit=10 if b"abc" in data else 30)
    assert caught.value.kind is ErrorKind.BAD_ANSWER


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_the_provider_s_failure(data: bytes) -> None:
    for read in (read_completion, streamed, lambda d: streamed(b"data: " + d + b"\n")):
        kind = None
        try:
            read(data)
        except ChatError as error:
            kind = error.kind
        assert kind in (None, ErrorKind.PROVIDER_FAILURE)


def scanned_bytes(work: Callable[[], object]) -> int:
    """Count how many bytes the methods of bytes look at while `work` runs."""
    scanned = 0

    def called(_: object, event: str, function: object) -> None:
        nonlocal scanned
        owner = getattr(function, "__self__", None)
        if event == "c_call" and isinstance(owner, bytes | bytearray):
            scanned += len(owner)

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return scanned


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_line_in_pieces_is_not_scanned_again_with_each_of_them(size: int) -> None:
    stream = b"data: " + b"x" * 20_000
    streamed = StreamedAnswer(max_chars=100_000)

    def feed() -> None:
        for start in range(0, len(stream), size):
            streamed.feed(stream[start : start + size])

    assert scanned_bytes(feed) <= 4 * len(stream)


def test_a_stream_that_says_nothing_is_bounded_in_bytes_and_in_lines() -> None:
    for event, bound in [(b": ping" + b"." * 60_000 + b"\n", "8000000 bytes"), (b"\n" * 60_000, "524288 lines")]:
        streamed = StreamedAnswer(max_chars=1_000_000)
        with pytest.raises(ChatError, match=f"larger than {bound}") as caught:
            deque(map(streamed.feed, [event] * 1_000))
        assert caught.value.kind is ErrorKind.BAD_ANSWER


def test_an_answer_crowded_with_values_is_refused_unbuilt_and_a_deep_error_is_told() -> None:
    for body in (b'{"choices":[' + b"[]," * 2_000_000 + b"[]]}", b'{"error":' + b"[" * 900 + b"]" * 900 + b"}"):
        with pytest.raises(ChatError) as caught:
            read_completion(body)
        assert caught.value.kind is ErrorKind.PROVIDER_FAILURE
