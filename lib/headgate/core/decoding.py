"""Decoding of untrusted messages: the number and depth of their values is checked before any value is built.

A small message of empty lists takes up to 64 times as much memory, and seconds, once it is built.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any, Final, Literal

MOST_VALUES: Final = 2**16
"""Per message: 15 MB at worst. Long lists of numbers belong in byte arrays."""

MOST_DEPTH: Final = 64
"""Code that walks a message recurses as deep as the message; Python allows a thousand nested calls."""

_STEPS: Final = bytes({ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256))
_NO_HEADS: Final = bytes(set(range(256)) - {*range(0x80, 0xA0), *range(0xDC, 0xE0)})
"""Bytes that start neither a list nor a map in msgpack."""

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


Halves = Literal["refused", "replaced", "kept"]
"""How to treat unpaired surrogates, which servers send that cut a text within a pair, and which models write."""


def json_value(data: bytes | bytearray, *, most_values: int = MOST_VALUES, halves: Halves = "refused") -> Any:
    """Return the value of a JSON document in UTF-8.

    Raises:
        orjson.JSONDecodeError: if it is not JSON, has over `most_values` values, or is nested deeper than `MOST_DEPTH`.
    """
    import orjson  # noqa: PLC0415 - cluster workers install without it

    if (flaw := _flaw_of_json(data, most_values)) is not None:
        raise orjson.JSONDecodeError(flaw, "", 0)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if halves == "refused" or b"\\ud" not in data.lower():
            raise
        try:
            value = json.loads(data.decode())
            return value if halves == "kept" else orjson.loads(storable(json.dumps(value, ensure_ascii=False)))
        except ValueError:
            pass
        raise


def storable(text: str) -> str:
    """Return `text` with every lone surrogate replaced, so that it can be encoded as UTF-8."""
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:  # in UTF-16, adjacent halves become one character
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def check_msgpack(data: bytes | bytearray, *, most_values: int = MOST_VALUES) -> None:
    """Check that a msgpack message may be built; whether it is valid is left to the decoder.

    Raises:
        ValueError: if it has more than `most_values` values, or is nested deeper than `MOST_DEPTH`.
    """
    heads = data.translate(None, _NO_HEADS)
    if len(heads) <= MOST_DEPTH and 30 * len(heads) < most_values and max(heads, default=0) < 0xDC:
        return  # few lists and maps, of at most 15 entries each, however much text there is
    import msgpack  # type: ignore[import-untyped]  # noqa: PLC0415 - few processes read it

    reader = msgpack.Unpacker(max_buffer_size=max(1, len(data)))
    reader.feed(data)
    values, left = 1, [1]  # `left`: entries to come of each open list and map, outermost first
    while left and reader.tell() < len(data):
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        first = data[reader.tell()]
        try:
            if 0x90 <= first <= 0x9F or first in {0xDC, 0xDD}:
                left.append(reader.read_array_header())
            elif 0x80 <= first <= 0x8F or first in {0xDE, 0xDF}:
                left.append(2 * reader.read_map_header())
            else:
                reader.skip()
                continue
        except msgpack.OutOfData:
            return
        values += left[-1]
        if values > most_values:
            raise ValueError(_too_many(values, most_values))
        if len(left) > MOST_DEPTH + 1:
            raise ValueError(_TOO_DEEP)


def _flaw_of_json(data: bytes | bytearray, most_values: int) -> str | None:
    opened = data.count(b"[") + data.count(b"{")
    if opened <= MOST_DEPTH and (len(data) <= most_values or opened + data.count(b",") < most_values):
        return None  # however much text there is
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if (texts := plain.count(b'"') // 2) > 2 * most_values:
        return _too_many(texts, most_values)
    outside = b"".join(plain.split(b'"')[::2])
    values = outside.count(b"[") + outside.count(b"{") + outside.count(b",") + 1
    if values > most_values:
        return _too_many(values, most_values)
    brackets = outside.translate(_STEPS, _NO_BRACKETS)
    return _TOO_DEEP if max(accumulate(memoryview(brackets).cast("b")), default=0) > MOST_DEPTH else None


_TOO_DEEP: Final = f"values are nested deeper than {MOST_DEPTH} lists and objects"


def _too_many(values: int, most: int) -> str:
    return f"at most {most:,} values are read from one message (got {values:,} or more)"
