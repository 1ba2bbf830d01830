"""Foreign messages are measured before they are built."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import msgpack
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import check_msgpack, json_value

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('a"\\[]{},:\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a"\\[{,'), inner),
    max_leaves=30,
)


def entries_of(value: object) -> int:
    """Count what the bound counts in msgpack: keys, and values of every depth."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(entries_of, value.values()))
    return 1 + sum(map(entries_of, value)) if isinstance(value, list) else 1


@given(VALUES)
def test_json_within_the_bounds_is_read_as_it_was_written(value: object) -> None:
    assert json_value(orjson.dumps(value), most_values=2_000) == value


@given(VALUES)
def test_msgpack_is_counted_exactly(value: object) -> None:
    data, entries = msgpack.packb(value), entries_of(value)
    check_msgpack(data, most_values=entries)
    if entries > 1:
        with pytest.raises(ValueError, match="values are read from one message"):
            check_msgpack(data, most_values=entries - 1)


@pytest.mark.parametrize(
    "crowded",
    [
        lambda: b"[" + b"[]," * 700_000 + b"[]]",
        lambda: b"[" + b"{}," * 700_000 + b"{}]",
        lambda: b"[" + b"1," * 1_000_000 + b"1]",
        lambda: b"[" + b'"",' * 700_000 + b'""]',
        lambda: b"{" + b",".join(b'"%d":0' % number for number in range(200_000)) + b"}",
        lambda: b'{"a":' * 300_000 + b"0" + b"}" * 300_000,
    ],
    ids=["lists", "objects", "numbers", "texts", "keys", "depth"],
)
def test_crowded_json_is_refused_before_anything_is_built(crowded: Callable[[], bytes]) -> None:
    data = crowded()
    tracemalloc.start()
    with pytest.raises(orjson.JSONDecodeError, match="values are read from one message"):
        json_value(data)
    assert tracemalloc.get_traced_memory()[1] < 12 * len(data)  # what is built of it takes 30 times as much, and more
    tracemalloc.stop()


@pytest.mark.parametrize("data", [b"[" * 65 + b"]" * 65, b'{"a":' * 70 + b"0" + b"}" * 70])
def test_deep_json_is_refused_though_it_is_small(data: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError, match="deeper than 64"):
        json_value(data)


def test_brackets_and_commas_in_texts_are_no_values() -> None:
    written = ['[[[{{{,,," \\', "\\" * 7, '"'] * 30_000
    assert json_value(json.dumps({"text": "".join(written)}).encode()) == {"text": "".join(written)}


@pytest.mark.parametrize(
    "crowded",
    [
        lambda: b"\xdd\x03\x93\x87\x00" + b"\x90" * 60_000_000,
        lambda: b"\xdc\xff\xff" * 500,
        lambda: b"\xdf\xff\xff\xff\xff",
        lambda: b"\xdd\x00\x01\x00\x00" + b"\x00" * 70_000,
        lambda: b"\x91" * 65 + b"\xc0",
        lambda: b"\x81\xa0" * 500 + b"\xc0",
    ],
    ids=["empty-lists", "nested-claims", "map", "numbers", "depth-of-lists", "depth-of-maps"],
)
def test_crowded_and_deep_msgpack_is_refused_by_its_heads(crowded: Callable[[], bytes]) -> None:
    data = crowded()
    with pytest.raises(ValueError, match=r"values are read from one message|deeper than 64"):
        check_msgpack(data)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_check(data: bytes) -> None:
    try:
        check_msgpack(data)
    except ValueError:
        return
