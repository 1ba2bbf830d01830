"""What a gateway reads of a request: its model, its size, how it begins."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from headgate.elastic.errors import InvalidRequestError
from headgate.elastic.gateway.completions import (
    ANSWER_TOKENS,
    BLOCK_BYTES,
    CHAT,
    COMPLETIONS,
    MOST_ANSWER_TOKENS,
    MOST_BLOCKS,
    MOST_CHOICES,
    prefixes_of,
    read_request,
)


def read(path: str = CHAT, **written: Any) -> Any:
    return read_request(path, orjson.dumps(written))


def said(*contents: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content} for content in contents]


def test_a_chat_is_as_much_work_as_its_text_and_the_longest_answer_it_allows() -> None:
    assert read(messages=said("x" * 396), max_tokens=50).tokens == 100 + 1 + 50
    assert read(messages=said("x" * 396), max_completion_tokens=20, max_tokens=50).tokens == 100 + 1 + 20
    assert read(messages=said("x" * 396)).tokens == 100 + 1 + ANSWER_TOKENS
    assert read(messages=said("x" * 396), max_tokens=50, n=3).tokens == 100 + 1 + 150


def test_a_limit_that_no_answer_comes_near_counts_as_a_long_answer() -> None:
    assert read(messages=said(""), max_tokens=1_000_000).tokens == 1 + 1 + MOST_ANSWER_TOKENS
    assert read(messages=said(""), max_tokens=1_000_000, n=10**9).tokens == 1 + 1 + MOST_ANSWER_TOKENS * MOST_CHOICES


def test_parts_of_a_message_count_by_their_text_and_not_by_their_pictures() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    parts = [{"type": "text", "text": "x" * 396}, picture]

    assert read(messages=[{"role": "user", "content": parts}], max_tokens=1).tokens == 100 + 1 + 1


@pytest.mark.parametrize(
    "prompt",
    ["x" * 400, ["x" * 200, "x" * 200], [7] * 100, [[7] * 50, [7] * 50]],
    ids=["text", "texts", "ids", "lists"],
)
def test_a_completion_is_as_much_work_however_its_prompt_is_written(prompt: Any) -> None:
    assert read(COMPLETIONS, prompt=prompt, max_tokens=1).tokens == 100 + 1 + 1


@pytest.mark.parametrize("limit", [-5, 0])
def test_a_limit_that_is_none_counts_as_one_token_and_is_left_to_the_engine(limit: int) -> None:
    assert read(messages=said(""), max_tokens=limit).tokens == 1 + 1 + 1


@pytest.mark.parametrize(
    ("path", "body", "rule"),
    [
        (CHAT, b"{", "the body must be JSON"),
        (CHAT, b"[]", "must be a JSON object (got an empty list)"),
        (CHAT, b"{}", "messages must be a list of at least one message (got nothing)"),
        (CHAT, b'{"messages": []}', "(got an empty list)"),
        (CHAT, b'{"messages": ["hello"]}', "a message must be a JSON object (got a string)"),
        (CHAT, b'{"messages": [{}], "model": 7}', "model must be a string (got a number)"),
        (COMPLETIONS, b"{}", "prompt must be a string, or a list that is not empty (got nothing)"),
        (COMPLETIONS, b'{"prompt": [[1], {}]}', "a prompt must be a string or a list of token ids (got an object)"),
    ],
)
def test_a_body_that_asks_for_nothing_is_refused_with_a_sentence(path: str, body: bytes, rule: str) -> None:
    with pytest.raises(InvalidRequestError, match=rule.replace("(", r"\(").replace(")", r"\)")):
        read_request(path, body)


def test_two_texts_share_as_many_hashes_as_they_have_equal_blocks_at_their_beginning() -> None:
    system = "You are careful. " * 100
    one, other = prefixes_of([system, "a" * 2_000]), prefixes_of([system, "b" * 2_000])

    shared = [a == b for a, b in zip(one, other, strict=True)]
    assert sum(shared) == len(system) // BLOCK_BYTES
    assert shared == sorted(shared, reverse=True)


def test_hashes_do_not_depend_on_what_follows() -> None:
    text = "word " * 1_000

    assert prefixes_of([text[:4_096]]) == prefixes_of([text])[: 4_096 // BLOCK_BYTES]


def test_where_a_message_ends_counts() -> None:
    assert prefixes_of(["a" * 300, "a" * 300]) != prefixes_of(["a" * 600])


def test_a_short_text_has_no_hashes_and_a_long_one_a_bounded_number() -> None:
    assert prefixes_of(["a" * (BLOCK_BYTES - 2)]) == ()
    assert len(prefixes_of(["é" * 1_000_000])) == MOST_BLOCKS


def test_chats_that_begin_alike_share_their_first_hashes() -> None:
    system = {"role": "system", "content": "You are careful. " * 100}
    one = read(messages=[system, *said("first")])
    other = read(messages=[system, *said("second")])

    assert one.prefixes
    assert one.prefixes == other.prefixes
