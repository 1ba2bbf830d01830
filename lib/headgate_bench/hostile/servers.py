"""Attacks by servers that Headgate calls, model endpoints and policy servers, and by those who put them in a roster."""

from __future__ import annotations

import asyncio
import base64
import gzip
import random
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgpack  # type: ignore[import-untyped]
import numpy as np
import orjson

from headgate.core import ChatError, ChatReply, Message, Model, Secret
from headgate.core.errors import InvalidRosterError
from headgate.jobqueue.policy import MalformedMessageError, decode, encode
from headgate.models import SIMULATED, ChatClient, ClientSettings, SimulationPlan
from headgate.sampling import FileRoster, HttpRoster, RosterSource
from headgate_bench.hostile.attack import Attack, Ground, Tally, attackers
from headgate_bench.jobqueue.served import served
from headgate_bench.provider import provider, served_apart

_HELLO: Final = (Message("user", "Say something."),)
_SETTINGS: Final = ClientSettings(deadline_s=3.0, first_token_s=3.0, idle_s=2.0, max_reply_bytes=2**20)
_LATE_S: Final = 4.0
"""Maximum time from its deadline to the end of an attempt: the data to decode by then is bounded."""

_OK: Final = b"HTTP/1.1 200 OK\r\n"
_STREAM: Final = _OK + b"Content-Type: text/event-stream\r\n\r\n"
_JSON: Final = _OK + b"Content-Type: application/json\r\n"
_PACKED: Final = (
    _OK + b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\na\r\n\x1f\x8b\x08\x08\0\0\0\0\0\x03\r\n"
)
REACHED: Final = "the request was sent on"
"""The answer at the address to which this endpoint redirects."""

_DONE: Final = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def _completion(text: str, **more: object) -> bytes:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return _whole(orjson.dumps({"choices": [choice], **more}))


def _whole(body: bytes, head: bytes = _JSON) -> bytes:
    return head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def _for_ever(head: bytes, piece: bytes) -> Callable[[str], Iterator[bytes]]:
    def sent(_: str) -> Iterator[bytes]:
        yield head
        while True:
            yield piece

    return sent


def _once(make: Callable[[str], bytes]) -> Callable[[str], Iterator[bytes]]:
    return lambda key: iter([make(key)])


def _chunk(delta: Mapping[str, object]) -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"delta": delta}]}) + b"\n\n"


def _key_in_pieces(key: str) -> Iterator[bytes]:
    yield _STREAM
    for letter in f"your key is {key}":
        yield _chunk({"content": letter})
    yield _DONE


SENDS: Final[Mapping[str, Callable[[str], Iterator[bytes]]]] = {
    "events-without-text": _for_ever(_STREAM, _chunk({}) * 200),
    "comments": _for_ever(_STREAM, b": alive\n\n" * 500),
    "thoughts": _for_ever(_STREAM, _chunk({"reasoning_content": "hm"}) * 200),
    "empty-lines": _for_ever(_STREAM, b"\n" * 4000),
    "unterminated-line": _for_ever(_STREAM, b"data: " + b"x" * 64),
    "endless-body": _for_ever(_JSON + b"\r\n", b" " * 65_536),
    "endless-head": _for_ever(_OK, b"X-Padding: " + b"x" * 4000 + b"\r\n"),
    "endless-1xx": _for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "endless-error": _for_ever(b"HTTP/1.1 500 Oops\r\n\r\n", b"x" * 65_536),
    "tiny-chunks": _for_ever(_OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 5000),
    "endless-gzip-name": _for_ever(_PACKED, b"1\r\nx\r\n" * 5000),
    "endless-chunk-size": _for_ever(_OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 4000),
    "claimed-length": _once(lambda _: _JSON + b"Content-Length: 99999999999999999\r\n\r\n{"),
    "deep": _once(lambda _: _whole(b"[" * 2_000_000)),
    "deep-objects": _once(lambda _: _whole(b'{"choices":' * 500_000)),
    "many-choices": _once(lambda _: _whole(b'{"choices": [' + b"[],{}," * 500_000 + b"{}]}")),
    "swelling": _once(lambda _: _whole(gzip.compress(bytes(2**28)), _JSON + b"Content-Encoding: gzip\r\n")),
    "counts": _once(lambda _: _completion("hi", usage={"prompt_tokens": -1, "completion_tokens": 2**62})),
    "megabytes": _once(lambda _: _completion("word " * 4_000_000)),
    "key-in-text": _once(lambda key: _completion(f"your key is {key}")),
    "key-in-base64": _once(lambda key: _completion(f"your key is {base64.b64encode(key.encode()).decode()}")),
    "key-in-url": _once(lambda key: _completion(f"your key is {quote(key, safe='')}")),
    "key-in-error": _once(lambda key: _whole(orjson.dumps({"error": {"message": f"bad key {key}", "code": 401}}))),
    "key-in-status": _once(lambda key: f"HTTP/1.1 401 {key}\r\nContent-Length: 0\r\n\r\n".encode()),
    "key-in-pieces": _key_in_pieces,
    "redirect": _once(
        lambda _: b"HTTP/1.1 307 Go\r\nLocation: /reached/v1/chat/completions\r\nContent-Length: 0\r\n\r\n"
    ),
    "nothing": lambda _: iter(()),
    "noise": _once(lambda key: random.Random(key).randbytes(100_000)),
    "noise-stream": _once(lambda key: _STREAM + random.Random(key).randbytes(100_000) + _DONE),
}
"""Path -> the bytes that it sends, given the key of the request."""


async def endpoints(ground: Ground) -> Tally:
    """Try hostile endpoints on the client, and measure a good one next to four that stream endlessly."""
    plan = SimulationPlan(mean_s=0.05, cv=0.0, cap=64)
    async with _hostile() as hostile, ChatClient(_SETTINGS) as client, provider(plan) as good:
        tally = await ground.tried(_requests(hostile, client, max(1, ground.tries // 10), ground.rng), at_once=8)
        names = ("events-without-text", "comments", "thoughts", "tiny-chunks")
        siege = [partial(client.chat, hostile(name, "sk-siege", True), _HELLO) for name in names]
        ask = partial(client.chat, Model(SIMULATED, base_url=good.base_url), _HELLO)
        return await ground.besieged(tally, ask, attackers(siege))


_Models = Callable[[str, str, bool], Model]
"""Makes a model from what its endpoint sends, the key, and whether to ask for a stream."""


@asynccontextmanager
async def _hostile() -> AsyncIterator[_Models]:
    """Yield the models of a hostile endpoint, which runs in its own process."""
    async with served_apart(__name__) as (port, _):
        yield lambda does, key, stream: Model(
            does,
            base_url=f"http://127.0.0.1:{port}/{does}/v1",
            api_key=Secret(key),
            options=(("stream", stream),),
        )


def _requests(hostile: _Models, client: ChatClient, tries: int, rng: random.Random) -> Iterator[Attack]:
    """Yield requests for everything that the endpoint can send, whole and streamed, each with its own key."""
    for name, stream, number in product(SENDS, (False, True), range(tries)):
        key = f"{rng.choice(('sk-', 'key+/', 'gate:'))}{rng.getrandbits(96):024x}"
        ask = partial(client.chat, hostile(name, key, stream), _HELLO)
        how = "streamed" if stream else "whole"
        yield Attack(f"{name}, {how} {number or ''}".rstrip(), partial(_asked, ask, key))


async def _asked(ask: Callable[[], Awaitable[ChatReply]], key: str) -> str:
    """Return what an endpoint achieved by one request."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        said, size = (text := (await ask()).text), len(text)
    except ChatError as error:
        said, size = str(error), 0
    took = loop.time() - began
    if any(form in said for form in (key, quote(key, safe=""), base64.b64encode(key.encode()).decode())):
        return "the key is in what would be stored"
    if size > _SETTINGS.max_reply_bytes:
        return f"an answer of {size} characters"
    if took > _SETTINGS.deadline_s + _LATE_S:
        return f"{took:.1f} s"
    return "the request was sent on" if said == REACHED else ""


_CPU_S: Final = 1.5
"""Maximum CPU time of reading a message; 64 MiB of honest arrays take a tenth of it."""

_ARRAY: Final = {b"__ndarray__": True, b"data": b"", b"dtype": "<f4", b"shape": [0]}


async def messages(ground: Ground) -> Tally:
    """Try messages that are cheap to send and expensive to read, or inconsistent, on a policy server's worker."""
    return await ground.tried(messages_of(30 * ground.tries, ground.rng))


def messages_of(tries: int, rng: random.Random) -> Iterator[Attack]:
    """Yield attacks; `tries` of them are an honest message with random bytes changed."""
    crafted = {
        "empty lists": b"\x81\xa1x\xdd" + struct.pack(">I", 30_000_000) + b"\x90" * 30_000_000,
        "empty maps": b"\x81\xa1x\xdd" + struct.pack(">I", 30_000_000) + b"\x80" * 30_000_000,
        "numbers": b"\x81\xa1x\xdd" + struct.pack(">I", 60_000_000) + b"\x01" * 60_000_000,
        "lists of lists": b"\x81\xa1x" + b"\x91" * 1_000_000 + b"\x01",
        "maps of maps": b"\x81\xa1x" + b"\x81\xa1x" * 300_000 + b"\x01",
        "keys": b"\xdf"
        + struct.pack(">I", 2**21)
        + b"".join(b"\xce%b\x01" % struct.pack(">I", n) for n in range(2**21)),
        "a length that is not there": b"\x81\xa1x\xdb\xff\xff\xff\xff",
        "arrays of nothing": msgpack.packb({"x": [_ARRAY] * 200_000}),
        "a shape that overflows": msgpack.packb({"x": {**_ARRAY, b"shape": [2**32, 2**32, 0]}}),
        "objects": msgpack.packb({"x": {**_ARRAY, b"dtype": "|O"}}),
        "a pickle": msgpack.packb({"x": msgpack.ExtType(1, b"cos\nsystem\n(S'true'\ntR.")}),
        "more than a message may be": bytes(64 * 2**20 + 1),
    }
    for name, data in crafted.items():
        yield Attack(name, partial(_read, data, may_be_read=name == "a shape that overflows"))
    honest = encode({"action": np.zeros((16, 7), np.float32), "info": {"step": 1, "names": ["a", "b"]}})
    for number in range(tries):
        changed = bytearray(honest)
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        yield Attack(f"changed bytes {number}", partial(_read, bytes(changed), may_be_read=True))


async def _read(data: bytes, *, may_be_read: bool) -> str:
    began = time.process_time()
    try:
        decode(data)
        was_read = True
    except MalformedMessageError as error:
        was_read = False
        if len(str(error)) > 1_000:
            return f"an error of {len(str(error))} characters"
    except Exception as error:  # noqa: BLE001 - a worker would die of it
        return f"{type(error).__name__}: {error}"[:200]
    if (took := time.process_time() - began) > _CPU_S:
        return f"{took:.1f} s of processor time"
    return "it was read" if was_read and not may_be_read else ""


_METADATA: Final = (
    *("169.254.169.254", "169.254.0.1", "100.100.100.200", "192.0.0.192"),
    *("fe80::1", "::ffff:169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
)
_SPELLINGS: Final = (
    *("0xA9FEA9FE", "0251.0376.0251.0376", "2852039166", "169.16689662", "169.254.169.254."),
    *("metadata", "Metadata.", "instance-data", "metadata.google.internal", "METADATA.google.internal."),
)
"""Addresses of metadata services, and other spellings and names of them."""


async def metadata(ground: Ground) -> Tally:
    """Try to make Headgate call metadata services: as policy server, roster or model, and by names for one."""
    database = f"sqlite:///{ground.folder}/queue.db"
    async with (
        served(database, ground.folder) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as queue,
        ChatClient(ClientSettings(deadline_s=3.0, connect_s=2.0)) as client,
    ):
        attacks: list[Attack] = []
        for host in (*_METADATA, *_SPELLINGS):
            url, file = f"http://{f'[{host}]' if ':' in host else host}/v1", ground.folder / f"{len(attacks)}.json"
            file.write_bytes(orjson.dumps({"models": [{"name": "m", "base_url": url}]}))
            roster = HttpRoster(url, environ={}, timeout_s=2.0)
            attacks += [
                Attack(f"policy server {host}", partial(_registered, queue, host)),
                Attack(f"model {host}", partial(_loaded, FileRoster(file, environ={}))),
                Attack(f"roster {host}", partial(_loaded, roster)),
            ]
        attacks += [Attack(f"a name for {one}", partial(_connected, client, one)) for one in _METADATA]
        return await ground.tried(attacks)


async def _registered(queue: aiohttp.ClientSession, host: str) -> str:
    server = {"pool": "p", "host": host, "port": 80}
    async with queue.post("/v1/resources", json={"resources": [server]}) as answer:
        return "" if 400 <= answer.status < 500 else f"{answer.status} {await answer.text()}"


async def _loaded(roster: RosterSource) -> str:
    try:
        await roster.load()
    except InvalidRosterError as error:
        return "" if "metadata address" in str(error) else str(error)
    return "it is in the roster"


async def _connected(client: ChatClient, address: str) -> str:
    """Ask a model at a host name that resolves to a metadata service's address."""

    async def resolved(_: str, port: int, **__: Any) -> list[tuple[Any, ...]]:
        family, more = (socket.AF_INET6, (0, 0)) if ":" in address else (socket.AF_INET, ())
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, *more))]

    loop = asyncio.get_running_loop()
    loop.getaddrinfo, usual = resolved, loop.getaddrinfo  # type: ignore[method-assign,assignment]
    try:
        name = address.replace(":", "-").replace(".", "-")
        await client.chat(Model("m", base_url=f"http://{name}.example/v1"), _HELLO)
    except ChatError as error:
        return "" if "metadata address" in str(error) else str(error)
    finally:
        loop.getaddrinfo = usual  # type: ignore[method-assign]
    return "it answered"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        name = head.split("/")[1]
        key = head.partition("Bearer ")[2].partition("\r\n")[0]
        for piece in SENDS[name](key) if name in SENDS else [_completion(REACHED)]:
            writer.write(piece)
            await writer.drain()
        if name == "nothing":
            await reader.read()
    except (OSError, asyncio.IncompleteReadError):
        pass  # repelled
    finally:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # ends when the parent process ends in any way


if __name__ == "__main__":
    asyncio.run(_serve())
