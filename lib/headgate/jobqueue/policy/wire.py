"""Messages between simulator and policy server: msgpack maps that carry numpy arrays and scalars.

The form is that of openpi's and BEHAVIOR-1K's policy servers. An array is a map with the binary keys `__ndarray__`
(true), `data` (its bytes in C order), `dtype` (numpy's `dtype.str`) and `shape`; a scalar is one with `__npgeneric__`,
`data` (the plain value) and `dtype`. Nothing is ever pickled: dtypes that need it (objects) are refused both ways, and
so are records and complex numbers, which those servers refuse, too.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgpack  # type: ignore[import-untyped]
import numpy as np

from headgate.core import check_msgpack
from headgate.jobqueue.policy.errors import MalformedMessageError

T = TypeVar("T")

BUSY_CODE: Final = 1013
"""Close code: another episode runs (RFC 6455's registry: try again later)."""

SUPERSEDED_CODE: Final = 4409
"""Close code of our own: a newer reservation has the server."""

MAX_MESSAGE_BYTES: Final = 64 * 2**20
"""Of one message, either way: five times the observation of three 720x720 cameras with depth."""

MAX_DIMENSIONS: Final = 32

_ARRAY: Final = b"__ndarray__"
_SCALAR: Final = b"__npgeneric__"
_DTYPE: Final = re.compile(
    r"[<>|=]?(b1|[iu][1248]|f(2|4|8|12|16)|[SU][1-9][0-9]{0,7}|[Mm]8(\[[0-9]{0,9}[A-Za-zμ]{1,2}\])?)"
)
_MAX_CODE_POINT: Final = 0x10FFFF
_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "b": (bool,), "i": (int,), "u": (int,), "f": (int, float), "S": (bytes,), "U": (str,),
}  # fmt: skip
"""Kind of dtype -> what the value of a scalar may be; scalars of other kinds cannot be sent."""


def encode(message: Mapping[str, Any], *, max_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
    """Return a message as bytes.

    Raises:
        MalformedMessageError: if a value has a type that cannot travel, or the message is larger than `max_bytes`.
    """
    try:
        data: bytes = msgpack.packb(dict(message), default=_plain)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedMessageError(f"the message cannot be sent: {error}") from error
    if len(data) > max_bytes:
        raise MalformedMessageError(_too_large(len(data), max_bytes), next_step="Send smaller or fewer arrays.")
    return data


def decode(data: bytes, *, max_bytes: int = MAX_MESSAGE_BYTES) -> dict[str, Any]:
    """Return the message that `data` holds; its arrays are views that cannot be written to.

    Raises:
        MalformedMessageError: if it is no msgpack, no map, too large, holds more values than `check_msgpack` allows, or
            an array that is not what it says.
    """
    if len(data) > max_bytes:
        raise MalformedMessageError(_too_large(len(data), max_bytes))
    try:
        check_msgpack(data)
        message = msgpack.unpackb(data, object_hook=_numpy, ext_hook=_no_extension, strict_map_key=False)
    except (msgpack.UnpackException, TypeError, ValueError, ArithmeticError) as error:
        raise MalformedMessageError(f"a message of {len(data)} bytes cannot be read: {error}") from error
    if not isinstance(message, dict):
        raise MalformedMessageError(f"a message must be a map (got {type(message).__name__})")
    return message


async def read_apart(read: Callable[[Any], T], frame: str | bytes) -> T:
    """Return what `read` makes of a frame, of a large one in a thread, so that the loop goes on meanwhile."""
    return await asyncio.to_thread(read, frame) if len(frame) > 2**18 else read(frame)


def _too_large(size: int, limit: int) -> str:
    return f"a message must be at most {limit:,} bytes (got {size:,})"


def _plain(value: Any) -> Any:
    """Return what msgpack packs in place of a value that it does not know."""
    if isinstance(value, np.ndarray):
        _check_dtype(value.dtype)
        return {_ARRAY: True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic):
        if value.dtype.kind not in _PLAIN or value.dtype.itemsize > 8:
            raise ValueError(f"scalars of dtype {value.dtype} cannot be sent")
        return {_SCALAR: True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"values of type {type(value).__name__} cannot be sent")


def _numpy(pairs: dict[Any, Any]) -> Any:
    """Return the array or scalar that a map stands for, or the map."""
    if _ARRAY in pairs:
        return _array(pairs.get(b"data"), _dtype(pairs.get(b"dtype")), pairs.get(b"shape"))
    if _SCALAR in pairs:
        return _scalar(pairs.get(b"data"), _dtype(pairs.get(b"dtype")))
    return pairs


def _array(data: object, dtype: np.dtype[Any], shape: object) -> np.ndarray[Any, Any]:
    if not isinstance(data, bytes):
        raise TypeError(f"the data of an array must be bytes (got {type(data).__name__})")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(_is_size(size) for size in shape):
        raise ValueError(f"the shape of an array must be up to {MAX_DIMENSIONS} numbers >= 0 (got {shape!r:.80})")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {shape} and dtype {dtype} does not have {len(data)} bytes")
    _check_contents(data, dtype)
    return np.ndarray(shape=tuple(shape), dtype=dtype, buffer=data)


def _scalar(value: object, dtype: np.dtype[Any]) -> np.generic:
    kinds = _PLAIN.get(dtype.kind, ())
    if type(value) not in kinds:
        raise ValueError(f"a scalar of dtype {dtype} cannot be {value!r:.80}")
    with np.errstate(over="raise"):
        scalar: np.generic = dtype.type(value)
    return scalar


def _dtype(text: object) -> np.dtype[Any]:
    if not isinstance(text, str) or _DTYPE.fullmatch(text) is None:
        raise ValueError(f"dtype {text!r:.80} is none of numbers, booleans, times, text or bytes")
    return np.dtype(text)


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if _DTYPE.fullmatch(dtype.str) is None:
        raise ValueError(f"arrays of dtype {dtype} cannot be sent")


def _check_contents(data: bytes, dtype: np.dtype[Any]) -> None:
    """Raise for bytes that numpy would take as they are, and trip over later."""
    if dtype.kind == "b" and data.translate(None, b"\x00\x01"):
        raise ValueError("a boolean must be 0 or 1")
    if dtype.kind == "U":
        points = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max(initial=0) > _MAX_CODE_POINT:
            raise ValueError("text holds what is no character")


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _no_extension(code: int, _: bytes) -> Any:
    raise ValueError(f"extension type {code} cannot be sent")
