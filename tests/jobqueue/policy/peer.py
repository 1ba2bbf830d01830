"""The other end, written from the public format alone: how openpi's and BEHAVIOR-1K's programs speak."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import numpy as np
from websockets.asyncio.server import ServerConnection, serve

METADATA = {"policy": "peer", "action_shape": [2]}


def pack(message: Any) -> bytes:
    return msgpack.packb(message, default=_pack)


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, object_hook=_unpack)


def _pack(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    return value


def _unpack(pairs: dict[Any, Any]) -> Any:
    if b"__ndarray__" in pairs:
        return np.ndarray(buffer=pairs[b"data"], dtype=np.dtype(pairs[b"dtype"]), shape=pairs[b"shape"])
    if b"__npgeneric__" in pairs:
        return np.dtype(pairs[b"dtype"]).type(pairs[b"data"])
    return pairs


@asynccontextmanager
async def peer(talk: Callable[[ServerConnection], Awaitable[None]], **options: Any) -> AsyncIterator[int]:
    """A server that sends its metadata and then does what `talk` does; gives its port."""

    async def visited(connection: ServerConnection) -> None:
        await connection.send(pack(METADATA))
        await talk(connection)

    async with raw_peer(visited, **options) as port:
        yield port


@asynccontextmanager
async def raw_peer(talk: Callable[[ServerConnection], Awaitable[None]], **options: Any) -> AsyncIterator[int]:
    """A server that does what `talk` does, from the first frame on."""
    async with serve(talk, "127.0.0.1", 0, compression=None, max_size=None, close_timeout=0.1, **options) as server:
        yield server.sockets[0].getsockname()[1]


async def echo_sums(connection: ServerConnection) -> None:
    """Answer each observation with the sum of its `state`, as an action; say nothing to a reset."""
    async for frame in connection:
        message = unpack(frame)
        if "reset" not in message:
            await connection.send(pack({"action": np.array([message["state"].sum()], dtype=np.float32)}))
