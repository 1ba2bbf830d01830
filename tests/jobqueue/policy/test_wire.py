"""What travels, byte for byte, and what does not."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as arrays
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.jobqueue.policy import MalformedMessageError, decode, encode
from headgate.jobqueue.policy.protocol import read_apart
from tests.jobqueue.policy import peer

GOLDEN: list[tuple[dict[str, Any], bytes]] = [
    ({"reset": True}, b"\x81\xa5reset\xc3"),
    (
        {"x": np.array([[1, 2]], dtype=np.uint8)},
        b"\x81\xa1x\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x02\x01\x02\xc4\x05dtype\xa3|u1\xc4\x05shape\x92\x01\x02",
    ),
    (
        {"a": np.array([1.5], dtype="<f4")},
        b"\x81\xa1a\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x04\x00\x00\xc0\x3f\xc4\x05dtype\xa3<f4\xc4\x05shape\x91\x01",
    ),
    (
        {"d": np.int64(3)},
        b"\x81\xa1d\x83\xc4\x0d__npgeneric__\xc3\xc4\x04data\x03\xc4\x05dtype\xa3<i8",
    ),
]

PLAIN = arrays.scalar_dtypes().filter(lambda dtype: dtype.kind in "biuf")
TEXT = arrays.unicode_string_dtypes(max_len=8) | arrays.byte_string_dtypes(max_len=8)
TIMES = arrays.datetime64_dtypes() | arrays.timedelta64_dtypes()


def same(left: Any, right: Any) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.mark.parametrize(("message", "data"), GOLDEN)
def test_a_message_is_these_bytes(message: dict[str, Any], data: bytes) -> None:
    assert encode(message) == data


@settings(max_examples=30)
@given(arrays.arrays(PLAIN | TEXT | TIMES, arrays.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=5)))
def test_an_array_arrives_as_it_was_sent(array: np.ndarray[Any, Any]) -> None:
    assert same(decode(encode({"a": {"deep": [array]}}))["a"]["deep"][0], array)


@settings(max_examples=30)
@given(arrays.arrays(PLAIN, arrays.array_shapes(min_dims=0, min_side=0)))
def test_programs_that_speak_the_public_format_understand_both_ways(array: np.ndarray[Any, Any]) -> None:
    assert same(peer.unpack(encode({"a": array}))["a"], array)
    assert same(decode(peer.pack({"a": array}))["a"], array)


@pytest.mark.parametrize(
    "scalar", [np.bool_(True), np.uint8(255), np.int16(-5), np.uint64(2**64 - 1), np.float16(0.5), np.float32(0.1)]
)
def test_a_scalar_keeps_its_dtype(scalar: np.generic) -> None:
    arrived = decode(encode({"s": scalar}))["s"]
    assert (arrived.dtype, arrived) == (scalar.dtype, scalar)


@settings(max_examples=30)
@given(st.dictionaries(st.text(), st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10,
)))  # fmt: skip
def test_plain_values_arrive_as_they_were_sent(message: dict[str, Any]) -> None:
    assert decode(encode(message)) == message


def test_an_array_in_another_order_arrives_in_its_own_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert np.array_equal(decode(encode({"a": array}))["a"], array)


def test_numbers_are_allowed_as_keys() -> None:
    assert decode(encode({"objects": {7: "cup"}})) == {"objects": {7: "cup"}}


@pytest.mark.parametrize(
    "value",
    [
        np.array([{}, []], dtype=object),
        np.zeros(2, dtype="i4,f4"),
        np.zeros(2, dtype=np.complex64),
        np.complex128(1j),
        np.datetime64("2026-01-01"),
        np.void(b"ab"),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        pytest.param(object(), id="object"),
        2**64,
        {1, 2},
    ],
    ids=repr,
)
def test_what_cannot_travel_is_refused(value: Any) -> None:
    with pytest.raises(MalformedMessageError, match="cannot be sent"):
        encode({"value": value})


def test_a_message_without_end_is_refused() -> None:
    message: dict[str, Any] = {}
    message["me"] = message
    with pytest.raises(MalformedMessageError, match="cannot be sent"):
        encode(message)


def array_map(**changes: Any) -> dict[bytes, Any]:
    fields = {"__ndarray__": True, "data": b"\x00" * 8, "dtype": "<f4", "shape": [2], **changes}
    return {key.encode(): value for key, value in fields.items()}


@pytest.mark.parametrize(
    "value",
    [
        array_map(dtype="|O", data=pickle.dumps([1]), shape=[1]),
        array_map(dtype="O"),
        array_map(dtype="<c8", shape=[1]),
        array_map(dtype="i4,i4", shape=[1]),
        array_map(dtype="|V8", shape=[1]),
        array_map(dtype=[["a", "<f8"]], shape=[1]),
        array_map(dtype="|S0", data=b"", shape=[10**12]),
        array_map(dtype="<M8[zz]", shape=[1]),
        array_map(dtype=None),
        array_map(shape=[3]),
        array_map(shape=[-2]),
        array_map(shape=[2.0]),
        array_map(shape=[True, 2]),
        array_map(shape=None),
        array_map(shape=[1] * 33),
        array_map(shape=[0, 2**62, 2**62], data=b""),
        array_map(data="\x00" * 8),
        array_map(data=None),
        array_map(dtype="|b1", data=b"\x02", shape=[1]),
        array_map(dtype="<U1", data=b"\xff\xff\xff\xff", shape=[1]),
        {b"__npgeneric__": True, b"data": 300, b"dtype": "|u1"},
        {b"__npgeneric__": True, b"data": 1e300, b"dtype": "<f4"},
        {b"__npgeneric__": True, b"data": "1", b"dtype": "<f4"},
        {b"__npgeneric__": True, b"data": True, b"dtype": "<i4"},
        {b"__npgeneric__": True, b"data": b"x", b"dtype": "|O"},
        {b"__npgeneric__": True, b"dtype": "<i4"},
        msgpack.ExtType(5, b"x"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_is_not_what_it_says_is_refused(value: Any) -> None:
    with pytest.raises(MalformedMessageError, match="cannot be read"):
        decode(msgpack.packb({"a": value}))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x81", b"\xc1", b"\x81\xa1x\x01\x01", b"\x81\xa1\xff\x01", b"\x81\x90\x01", b"\x81\x01" * 5000,
     b"\x91" * 3000, b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"],
    ids=lambda data: repr(data[:10]),
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="cannot be read"):
        decode(data)


@pytest.mark.parametrize("value", [[], 3, "text", None, np.zeros(2)])
def test_a_message_that_is_no_map_is_refused(value: Any) -> None:
    with pytest.raises(MalformedMessageError, match="must be a map"):
        decode(peer.pack(value))


def test_a_large_message_is_refused_both_ways() -> None:
    message = {"a": np.zeros(1000, dtype=np.uint8)}
    with pytest.raises(MalformedMessageError, match="at most 999 bytes"):
        encode(message, max_bytes=999)
    with pytest.raises(MalformedMessageError, match="at most 999 bytes"):
        decode(encode(message), max_bytes=999)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_message_or_the_one_error(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedMessageError:
        return
    assert isinstance(message, dict)


@given(st.data())
def test_a_damaged_message_gives_a_message_or_the_one_error(data: st.DataObject) -> None:
    whole = bytearray(encode({"a": np.arange(3.0), "s": np.float32(1), "t": np.array(["ab"]), "b": np.array([True])}))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        message = decode(bytes(whole))
    except MalformedMessageError:
        return
    for value in message.values():
        repr(value)


@pytest.mark.parametrize(
    "crowded",
    [
        lambda: b"\x81\xa6action\xdd\x03\x93\x87\x00" + b"\x90" * 60_000_000,
        lambda: b"\x81\xa6action" + b"\xdc\xff\xff" * 500,
        lambda: b"\x81\xa6action" + b"\x91" * 400 + b"\x01",
    ],
    ids=["empty-lists", "claims", "depth"],
)
def test_a_message_crowded_with_lists_is_refused_before_they_are_built(crowded: Callable[[], bytes]) -> None:
    data = crowded()
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessageError, match="values"):
            decode(data)
        # A copy of the message, and no list of it, which would take 64 bytes for each of its own; other threads of the
        # process take some, too.
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data) + 10_000_000
    finally:
        tracemalloc.stop()


async def test_a_large_message_is_read_in_a_thread_and_a_small_one_is_not() -> None:
    async def reads_here(frame: bytes) -> bool:
        return await read_apart(lambda _: threading.get_ident(), frame) == threading.get_ident()

    assert await reads_here(b"x" * 1_000)
    assert not await reads_here(b"x" * 1_000_000)
