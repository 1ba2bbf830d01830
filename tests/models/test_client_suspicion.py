"""The client against a server that breaks every rule: bytes written by hand."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import time
from base64 import b64encode

import aiohttp
import orjson
import pytest

from headgate.core import ChatError, ErrorKind, Model, Secret, SystemClock
from headgate.models import BatchClient, BatchStatus, ChatClient, ClientSettings
from tests.models.doubles import HELLO, ask_once, failure_of
from tests.models.raw_server import Script, always, completion, raw_server, read_request, response


def model(base_url: str) -> Model:
    return Model("m", base_url=base_url, api_key=Secret("the-very-secret-key"))


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\xff\xfe\x00garbage\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + completion(),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["ssh", "binary", "status", "long-header", "length", "chunk", "short", "gzip", "empty"],
)
async def test_what_is_no_http_is_the_provider_s_failure(data: bytes) -> None:
    async with raw_server(always(data)) as url:
        error = await failure_of(model(url), ClientSettings(deadline_s=5))
    assert error.kind is ErrorKind.PROVIDER_FAILURE


async def test_a_connection_closed_before_any_answer_is_a_connection_error() -> None:
    async with raw_server(always(b"")) as url:
        assert (await failure_of(model(url))).kind is ErrorKind.CONNECTION


async def test_a_connection_reset_before_any_answer_is_a_connection_error() -> None:
    async def script(_: int, __: bytes, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with RST
        writer.transport.abort()

    async with raw_server(script) as url:
        assert (await failure_of(model(url))).kind is ErrorKind.CONNECTION


async def test_a_kept_connection_that_the_server_closed_is_replaced_without_anyone_noticing() -> None:
    seen: list[int] = []

    async def script(number: int, _: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(number)
        writer.write(response(completion(f"from connection {number}")))
        if number == 1:
            await read_request(reader)  # take the second request, and close without a word
            seen.append(number)

    async with raw_server(script) as url, ChatClient() as client:
        first = await client.chat(model(url), HELLO)
        second = await client.chat(model(url), HELLO)
    assert [first.text, second.text] == ["from connection 1", "from connection 2"]
    assert seen == [1, 1, 2]


async def test_a_server_that_closes_every_connection_is_asked_once_more_and_no_more() -> None:
    asked = 0

    async def script(number: int, _: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if number == 1:
            writer.write(response(completion()))
            await read_request(reader)
            asked += 1

    async with raw_server(script) as url, ChatClient() as client:
        await client.chat(model(url), HELLO)
        with pytest.raises(ChatError) as caught:
            await client.chat(model(url), HELLO)
    assert caught.value.kind is ErrorKind.CONNECTION
    assert asked == 3


async def test_an_answer_cut_on_a_kept_connection_is_not_asked_for_again() -> None:
    asked = 0

    async def script(_: int, __: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.write(response(completion()))
        await read_request(reader)
        asked += 1
        writer.write(response(completion())[:-10])

    async with raw_server(script) as url, ChatClient() as client:
        await client.chat(model(url), HELLO)
        with pytest.raises(ChatError) as caught:
            await client.chat(model(url), HELLO)
    assert (caught.value.kind, asked) == (ErrorKind.PROVIDER_FAILURE, 2)


async def test_a_compressed_answer_is_read_and_one_that_swells_is_not() -> None:
    def packed(text: str) -> bytes:
        return response(gzip.compress(completion(text)), headers="Content-Encoding: gzip\r\n")

    async with raw_server(always(packed("unpacked"))) as url:
        assert (await ask_once(model(url))).text == "unpacked"
    async with raw_server(always(packed("a" * 50_000_000))) as url:
        assert (await failure_of(model(url))).kind is ErrorKind.BAD_ANSWER


async def test_a_redirect_is_not_followed_since_it_would_carry_the_key_elsewhere() -> None:
    asked: list[bytes] = []

    async def script(_: int, request: bytes, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        writer.write(response(b"", "307 Temporary Redirect", "Location: /v2/chat/completions\r\n"))

    async with raw_server(script) as url:
        error = await failure_of(model(url))
    assert (error.kind, error.status, len(asked)) == (ErrorKind.BAD_REQUEST, 307, 1)
    assert "base_url" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        response(b'{"error":{"message":"bad key the-very-secret-key given"}}', "401 Unauthorized"),
        response(b"the-very-secret-key", "500 Oops"),
        response(b"the-very-secret-key is no JSON"),
        response(b'{"error":{"code":500,"message":"the-very-secret-key"}}'),
        b"HTTP/1.1 the-very-secret-key\r\n\r\n",
        b"",
    ],
)
async def test_no_error_shows_the_key_nor_keeps_the_request_that_carried_it(answer: bytes) -> None:
    async with raw_server(always(answer)) as url:
        error = await failure_of(model(url))
    assert "the-very-secret-key" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_an_error_page_of_megabytes_is_shown_in_a_line() -> None:
    async with raw_server(always(response(b"<p>" + b"x" * 3_000_000, "502 Bad Gateway"))) as url:
        error = await failure_of(model(url))
    assert error.status == 502
    assert len(str(error)) < 400


async def test_what_is_sent_is_the_model_its_options_and_its_key_and_nothing_of_ours() -> None:
    asked: list[bytes] = []

    async def script(_: int, request: bytes, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        writer.write(response(completion(), headers="Set-Cookie: track=me\r\n"))

    options = (("temperature", 0.25), ("vendor_field", {"a": [1]}), ("headgate_task_header", False))
    async with raw_server(script) as url, ChatClient() as client:
        asking = Model("m", base_url=url + "/", served_name="served", api_key=Secret("k-123456"), options=options)
        await client.chat(asking, HELLO, task_header="a/1/2/3")
        await client.chat(asking, HELLO, task_header="a/1/2/3")
    head, _, body = asked[1].partition(b"\r\n\r\n")
    assert body == (
        b'{"temperature":0.25,"vendor_field":{"a":[1]},"model":"served","messages":[{"role":"user","content":"hello"}]}'
    )
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"Authorization: Bearer k-123456" in head
    assert b"cookie" not in head.lower()
    assert b"x-headgate" not in head.lower()


async def test_a_stream_that_stands_still_after_its_first_token_is_a_timeout() -> None:
    event = b'data: {"choices":[{"delta":{"content":"one"},"finish_reason":null}]}\n\n'

    async def script(_: int, __: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event)
        await reader.read()  # until the client goes away

    async with raw_server(script) as url:
        error = await failure_of(model(url), ClientSettings(stream=True, idle_s=0.1))
    assert (error.kind, str(error)) == (ErrorKind.PROVIDER_TIMEOUT, "the stream stalled for 0.1 s")


async def test_pings_before_the_first_token_do_not_count_as_progress() -> None:
    async def script(_: int, __: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        reading = asyncio.ensure_future(reader.read())
        while not reading.done():
            writer.write(b": ping\n\n")
            await asyncio.wait([reading], timeout=0.02)

    async with raw_server(script) as url:
        error = await failure_of(model(url), ClientSettings(stream=True, first_token_s=0.2, idle_s=0.1))
    assert str(error) == "no token within 0.2 s"


async def test_a_stream_is_over_at_done_though_the_server_keeps_it_open() -> None:
    events = b'data: {"choices":[{"delta":{"content":"one"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    async def script(_: int, __: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events)
        await reader.read()

    async with raw_server(script) as url:
        assert (await ask_once(model(url), ClientSettings(stream=True, deadline_s=5))).text == "one"


async def test_an_answer_in_one_piece_is_read_where_a_stream_was_asked_for() -> None:
    async with raw_server(always(response(completion("whole")))) as url:
        assert (await ask_once(model(url), ClientSettings(stream=True))).text == "whole"


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b::6464:64c8]",
        "[2002:a9fe:a9fe::1]",
    ],
)
async def test_a_link_local_address_where_clouds_keep_credentials_is_never_connected_to(host: str) -> None:
    error = await failure_of(model(f"http://{host}/v1"), ClientSettings(deadline_s=5))
    assert error.kind is ErrorKind.CONNECTION
    assert "link-local" in str(error)


async def test_an_address_in_a_disguised_form_is_a_bad_request() -> None:
    assert (await failure_of(model("http://2852039166/v1"))).kind is ErrorKind.BAD_REQUEST


async def test_an_answer_without_end_is_left_at_the_limit() -> None:
    async def script(_: int, __: bytes, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            writer.write(b"[" * 65_536)
            await writer.drain()

    async with raw_server(script) as url:
        error = await failure_of(model(url), ClientSettings(max_reply_bytes=1_000_000, deadline_s=20))
    assert error.kind is ErrorKind.BAD_ANSWER


async def test_a_proxy_of_the_environment_is_used_only_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def proxy(_: int, request: bytes, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(request.split(b"\r\n")[0])
        writer.write(response(completion("through the proxy")))

    async with raw_server(proxy) as url:
        monkeypatch.setenv("HTTP_PROXY", url.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        behind = Model("m", base_url="http://model.invalid/v1")
        reply = await ask_once(behind, ClientSettings(use_environment_proxy=True))
        error = await failure_of(behind)
    assert reply.text == "through the proxy"
    assert asked == [b"POST http://model.invalid/v1/chat/completions HTTP/1.1"]
    assert error.kind is ErrorKind.CONNECTION


@pytest.mark.long
async def test_closing_the_client_leaves_no_socket_open() -> None:
    def open_sessions() -> set[int]:
        gc.collect()  # an unclosed session or transport would warn here, and a warning is an error
        return {id(o) for o in gc.get_objects() if isinstance(o, aiohttp.ClientSession) and not o.closed}

    before = open_sessions()  # of a fixture of another module in this process
    async with raw_server(always(response(completion()))) as url:
        async with ChatClient() as client:
            await client.chat(model(url), HELLO)
            assert open_sessions() - before, "the session is not among those that are looked at"
        assert open_sessions() <= before


class CountedSleep(SystemClock):
    """Its time stands still, and what is slept is added up."""

    slept_s = 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        await asyncio.sleep(0)


async def test_an_endless_stream_is_read_no_faster_than_any_model_talks_and_left_at_the_limit() -> None:
    event = b'data: {"choices":[{"delta":{"content":""},"finish_reason":null}]}\n\n' * 100

    async def script(_: int, __: bytes, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(event)
            await writer.drain()

    clock, settings = CountedSleep(), ClientSettings(stream=True, max_reply_bytes=500_000)
    async with raw_server(script) as url, ChatClient(settings, clock=clock) as client:
        with pytest.raises(ChatError, match="larger than 4000000 bytes") as caught:
            await client.chat(model(url), HELLO)
    assert caught.value.kind is ErrorKind.BAD_ANSWER
    assert clock.slept_s > 2  # 4 MB at 1 MiB/s, the first of which is free; time stood still, so each sleep counts anew


def endless(begin: bytes, piece: bytes) -> Script:
    async def script(_: int, __: bytes, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while True:
            writer.write(piece)
            await writer.drain()

    return script


async def test_of_endless_informational_answers_a_few_are_read() -> None:
    async with raw_server(endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000)) as url:
        error = await failure_of(model(url), ClientSettings(deadline_s=5))
    assert (error.kind, "more than 16 answers to one request" in str(error)) == (ErrorKind.CONNECTION, True)


async def test_a_large_answer_in_chunks_is_read_whole() -> None:
    body = completion("a" * 2**20)
    chunks = b"".join(b"40\r\n%s\r\n" % body[at : at + 64].ljust(64) for at in range(0, len(body), 64))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with raw_server(always(head + chunks + b"0\r\n\r\n")) as url:
        assert len((await ask_once(model(url))).text) == 2**20


async def test_a_packed_stream_that_swells_is_bounded_by_what_it_unpacks_to() -> None:
    packed = gzip.compress(b": nothing\n" * 5_000_000)
    async with raw_server(
        always(response(packed, headers="Content-Encoding: gzip\r\n", kind="text/event-stream"))
    ) as url:
        error = await failure_of(model(url), ClientSettings(stream=True, max_reply_bytes=100_000))
    assert (error.kind, "larger than" in str(error)) == (ErrorKind.BAD_ANSWER, True)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_that_the_endpoint_echoes_goes_no_further_though_it_is_split_over_a_stream(stream: bool) -> None:
    async def script(_: int, request: bytes, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = request.partition(b"Authorization: Bearer ")[2].partition(b"\r\n")[0].decode()
        said = f"your key {key}, {b64encode(b'Bearer ' + key.encode()).decode()}, {key.encode().hex()}"
        if not stream:
            writer.write(response(completion(said, id=key, system_fingerprint=key)))
            return
        pieces = [{"delta": {"content": character}, "finish_reason": None} for character in said]
        chunks = [{"id": key, "choices": [piece]} for piece in [*pieces, {"delta": {}, "finish_reason": key}]]
        events = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks)
        writer.write(response(events, kind="text/event-stream"))

    async with raw_server(script) as url:
        reply = await ask_once(model(url), ClientSettings(stream=stream))
    assert reply.text.count("[redacted]") == 3
    assert not any(part in repr(reply) for part in ("very-secret", "dmVyeS1zZWNyZX", "746865"))


async def test_half_a_character_in_a_result_of_a_batch_is_replaced() -> None:
    body = orjson.dumps({"custom_id": "r1", "response": {"status_code": 200, "body": orjson.Fragment(completion("x"))}})
    lines = body.replace(b'"x"', b'"half \\ud800"') + b"\n"
    async with raw_server(always(response(lines))) as url, ChatClient() as client:
        batches = BatchClient(client.connections, SystemClock())
        batch = BatchStatus("b-1", "completed", files=("f-1",))
        found = [(key, reply and reply.text) async for key, reply in batches.results(model(url), batch)]
    assert found == [("r1", "half \ufffd")]


async def test_results_of_a_batch_without_end_take_a_share_of_the_time() -> None:
    begin = b"HTTP/1.1 200 OK\r\nContent-Type: application/jsonl\r\n\r\n"
    async with raw_server(endless(begin, b"{}\n" * 20_000)) as url, ChatClient() as client:
        batches = BatchClient(client.connections, SystemClock())

        async def read() -> None:
            async for _ in batches.results(model(url), BatchStatus("b", "completed", files=("f",))):
                raise AssertionError("an empty object is no result")

        reading = asyncio.create_task(read())
        began = time.thread_time()
        done, _ = await asyncio.wait([reading], timeout=2)
        assert not done
        assert time.thread_time() - began < 1.2  # a fifth of the time for reading, and what the server takes
        reading.cancel()
