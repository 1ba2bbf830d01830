"""The protocol between simulator and policy server: messages, their order, and the lease of a connection.

Messages are msgpack maps that carry numpy arrays and scalars, in the form of openpi's and BEHAVIOR-1K's policy servers.
An array is a map with the binary keys `__ndarray__` (true), `data` (its bytes in C order), `dtype` (numpy's
`dtype.str`) and `shape`; a scalar is one with `__npgeneric__`, `data` (the plain value) and `dtype`. Nothing is ever
pickled: dtypes that need it (objects) are refused in both directions, and so are records and complex numbers, which
those servers also refuse.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgpack  # type: ignore[import-untyped]
import numpy as np

from headgate.core import check_msgpack
from headgate.jobqueue.errors import JobQueueError


class PolicyError(JobQueueError):
    """A failure of a policy server or of the connection to it; the episode does not count."""

    code = "policy_error"
    http_status = 502
    next_step = "Look at the log of the policy server."


class PolicyUnreachableError(PolicyError):
    """No policy server answers at the address: refused, unknown host, no websocket, or silent for too long."""

    code = "policy_unreachable"
    next_step = "Check that the policy server runs: GET /healthz on the same port answers OK."


class PolicyRefusedError(PolicyError):
    """The policy server answers but refuses this connection: it is busy, or the lease is an old one."""

    code = "policy_refused"
    http_status = 503
    next_step = "Reserve a server again, or wait until its episode is over."


class PolicyLostError(PolicyError):
    """The connection ended within an episode; it is not resumed, since the policy's memory is gone."""

    code = "policy_lost"
    next_step = "Restart the episode on a server that is up."


class PolicyTimeoutError(PolicyError):
    """The policy server did not answer an observation in time; the connection is closed."""

    code = "policy_timeout"
    http_status = 504
    next_step = "Look at the load of the policy server, or allow more time for an answer."


class PolicyFailedError(PolicyError):
    """The policy failed, as its server reports, or what it sent is not the action that was asked for.

    Attributes:
        report: the text that the server sent (usually a traceback), or empty.
    """

    code = "policy_failed"
    next_step = "Fix the policy; the traceback is in its server's log too."

    def __init__(self, message: str, *, report: str = "", next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.report = report


class MalformedMessageError(PolicyError):
    """A message of the policy protocol cannot be read, or a value cannot be put into one."""

    code = "policy_message_malformed"
    http_status = 422
    next_step = "Messages are msgpack maps with numbers, text, bytes, lists, maps and plain numpy arrays."


T = TypeVar("T")

BUSY_CODE: Final = 1013
"""Close code: another episode runs (RFC 6455's registry: try again later)."""

SUPERSEDED_CODE: Final = 4409
"""Headgate's own close code: a newer reservation has the server."""

MAX_MESSAGE_BYTES: Final = 64 * 2**20
"""Largest message in either direction: five times the observation of three 720x720 cameras with depth."""

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
        MalformedMessageError: if a value has a type that cannot be encoded, or the message is larger than `max_bytes`.
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
        MalformedMessageError: if it is not msgpack, not a map, too large, holds more values than `check_msgpack`
            allows, or an array that contradicts its dtype or shape.
    """
    if len(data) > max_bytes:
        raise MalformedMessageError(_too_large(len(data), max_bytes))
    try:
        check_msgpack(data)
        message = msgpack.unpackb(data, object_hook=_numpy, ext_hook=_no_extension, strict_map_key=False)
    except (msgpack.UnpackException, TypeError, ValueError, ArithmeticError) as error:
        why = str(error) or type(error).__name__
        raise MalformedMessageError(f"a message of {len(data)} bytes cannot be read: {why}") from error
    if not isinstance(message, dict):
        raise MalformedMessageError(f"a message must be a map (got {type(message).__name__})")
    return message


async def read_apart(read: Callable[[Any], T], frame: str | bytes) -> T:
    """Return what `read` makes of a frame; a large one is read in a thread, so that the loop keeps running."""
    return await asyncio.to_thread(read, frame) if len(frame) > 2**18 else read(frame)


def _too_large(size: int, limit: int) -> str:
    return f"a message must be at most {limit:,} bytes (got {size:,})"


def _plain(value: Any) -> Any:
    """Return what msgpack packs in place of a value that it does not know."""
    if isinstance(value, np.ndarray):
        if _DTYPE.fullmatch(value.dtype.str) is None:
            raise ValueError(f"arrays of dtype {value.dtype} cannot be sent")
        return {_ARRAY: True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic):
        if value.dtype.kind not in _PLAIN or value.dtype.itemsize > 8:
            raise ValueError(f"scalars of dtype {value.dtype} cannot be sent")
        return {_SCALAR: True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"values of type {type(value).__name__} cannot be sent")


def _numpy(pairs: dict[Any, Any]) -> Any:
    """Return the array or scalar that a map represents, or the map itself."""
    if _ARRAY in pairs:
        return _array(pairs.get(b"data"), _dtype(pairs.get(b"dtype")), pairs.get(b"shape"))
    if _SCALAR in pairs:
        return _scalar(pairs.get(b"data"), _dtype(pairs.get(b"dtype")))
    return pairs


def _array(data: object, dtype: np.dtype[Any], shape: object) -> np.ndarray[Any, Any]:
    if not isinstance(data, bytes):
        raise TypeError(f"the data of an array must be bytes (got {type(data).__name__})")
    are_sizes = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not are_sizes:
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
        raise ValueError(f"dtype {text!r:.80} is not one of numbers, booleans, times, text or bytes")
    return np.dtype(text)


def _check_contents(data: bytes, dtype: np.dtype[Any]) -> None:
    """Raise for bytes that numpy would accept now and fail on later."""
    if dtype.kind == "b" and data.translate(None, b"\x00\x01"):
        raise ValueError("a boolean must be 0 or 1")
    if dtype.kind == "U":
        points = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max(initial=0) > _MAX_CODE_POINT:
            raise ValueError("text contains a code point that is not a character")


def _no_extension(code: int, _: bytes) -> Any:
    raise ValueError(f"extension type {code} cannot be sent")


Action = np.ndarray[Any, Any]
"""A policy's answer: numbers, in the shape that the simulator takes."""


class Policy(Protocol):
    """What a policy server serves, and what an episode needs; `SyncPolicyClient` also is one.

    A server calls it from one thread at a time, never the event loop's.
    """

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The first message to clients: at least `policy`, its name."""

    def reset(self) -> None:
        """Forget the episode."""

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the action for an observation; whatever it raises goes to the client as a traceback."""


_SHOWN_CHARS: Final = 2_000


class Dialogue:
    """The messages of one connection to a policy server, from its metadata on.

    BEHAVIOR-1K's servers do not answer a reset. Some others do; such an answer carries no `action` and is skipped,
    since otherwise every later action would belong to the previous observation.
    """

    def __init__(self, opening: str | bytes) -> None:
        """Read the first frame of a connection.

        Raises:
            PolicyFailedError: if it is text.
            MalformedMessageError: if it cannot be read.
        """
        self.metadata: Mapping[str, Any] = decode(_binary(opening))
        self._resets_unanswered = 0
        self.skipped = ""  # the answer that was taken for that to a reset, in words

    def reset(self) -> bytes:
        """Return the message that starts an episode; it needs no answer."""
        self._resets_unanswered += 1
        return encode({"reset": True})

    def observe(self, observation: Mapping[str, Any]) -> bytes:
        """Return the message that asks for an action.

        Raises:
            MalformedMessageError: if a value of the observation cannot be encoded, or it has a key `reset`.
        """
        if "reset" in observation:
            raise MalformedMessageError(
                "an observation must not have the key 'reset', which tells servers that an episode starts",
                next_step="Give that value another name.",
            )
        return encode(observation)

    def read(self, frame: str | bytes) -> Action | None:
        """Return the action of a frame, None for the answer to a reset: the action is in the next one.

        Raises:
            PolicyFailedError: if it is text (a traceback), or holds no action.
            MalformedMessageError: if it cannot be read.
        """
        answer = decode(_binary(frame))
        if "action" not in answer and self._resets_unanswered:
            self._resets_unanswered -= 1
            self.skipped = f" after one without 'action' (it has {', '.join(map(repr, answer))!s:.200})"
            return None
        self._resets_unanswered, self.skipped = 0, ""
        return _action(answer)


def _binary(frame: str | bytes) -> bytes:
    if isinstance(frame, bytes):
        return frame
    last_line = frame.strip().rpartition("\n")[2]
    raise PolicyFailedError(f"the policy server reports an error: {last_line:.300}", report=frame[-_SHOWN_CHARS:])


def _action(answer: Mapping[str, Any]) -> Action:
    if "action" not in answer:
        raise PolicyFailedError(f"the answer has no key 'action' (it has {', '.join(map(repr, answer))!s:.200})")
    try:
        action = np.asarray(answer["action"])
    except ValueError as error:
        raise PolicyFailedError(f"the action is not an array: {error}") from error
    if action.dtype.kind not in "biuf":
        raise PolicyFailedError(f"an action must be numbers (got dtype {action.dtype})")
    return action


LEASE_HEADER: Final = "X-Headgate-Lease"
EPOCH_HEADER: Final = "X-Headgate-Epoch"

_LEASE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")
_EPOCH: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class PolicyLease:
    """A reservation of a policy server, as the job queue granted it.

    Attributes:
        lease_id: unique to the reservation.
        epoch: grows by one with every reservation of this server, so the highest is the one that holds it.

    Raises:
        MalformedMessageError: if they cannot be put in a header.
    """

    lease_id: str
    epoch: int

    def __post_init__(self) -> None:
        if _LEASE_ID.fullmatch(self.lease_id) is None:
            raise MalformedMessageError(
                f"a lease id must be 1 to 200 letters, digits or ._:- (got {self.lease_id!r:.80})"
            )
        if not 0 <= self.epoch < 10**18:
            raise MalformedMessageError(f"an epoch must be >= 0 and have at most 18 digits (got {self.epoch})")

    @property
    def headers(self) -> dict[str, str]:
        """The headers that carry it when a connection is opened."""
        return {LEASE_HEADER: self.lease_id, EPOCH_HEADER: str(self.epoch)}


def read_lease(headers: Mapping[str, str]) -> PolicyLease | None:
    """Return the lease of a connection, None for a client without one.

    Raises:
        MalformedMessageError: if the headers are invalid, or only one of them is present.
    """
    lease_id, epoch = headers.get(LEASE_HEADER), headers.get(EPOCH_HEADER)
    if lease_id is None and epoch is None:
        return None
    if lease_id is None or epoch is None or _EPOCH.fullmatch(epoch) is None:
        raise MalformedMessageError(
            f"{LEASE_HEADER} and {EPOCH_HEADER} must come together, the epoch a number "
            f"(got {lease_id!r:.80} and {epoch!r:.80})"
        )
    return PolicyLease(lease_id, int(epoch))
