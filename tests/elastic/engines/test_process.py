"""Engines that are started from weights: their command lines, their processes, and why one does not start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate.core import Launch
from headgate.core.errors import InvalidInputError
from headgate.elastic.engines import EngineProcess, command_line
from headgate.elastic.errors import EngineError

BASELINES = f"{sys.executable} -m headgate.cli serve-baselines --port {{port}}"
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("launch", "line"),
    [
        (
            Launch("vllm", "/models/qwen", "qwen", gpus=2, slots=16, options={"max_model_len": 4096}),
            (
                "vllm serve /models/qwen --served-model-name qwen --host 127.0.0.1 --port 7 --tensor-parallel-size 2 "
                "--max-num-seqs 16 --max-model-len 4096"
            ),
        ),
        (
            Launch("sglang", "/models/qwen", "qwen", options={"trust-remote-code": True, "disable-radix-cache": False}),
            (
                f"{sys.executable} -m sglang.launch_server --model-path /models/qwen --host 127.0.0.1 --port 7 "
                "--served-model-name qwen --tp-size 1 --max-running-requests 8 --trust-remote-code"
            ),
        ),
        (
            Launch("llama.cpp", "/models/small.gguf", "small", slots=2),
            (
                f"{sys.executable} -m headgate.cli serve-model --weights /models/small.gguf --name small --parallel 2 "
                "--host 127.0.0.1 --port 7"
            ),
        ),
        (
            Launch("command", "/models/a b", "mine", command="serve '{weights}' --as {name} --at :{port}"),
            "serve /models/a b --as mine --at :7",
        ),
    ],
    ids=lambda value: value.program if isinstance(value, Launch) else "",
)
def test_a_command_line_has_the_weights_the_name_the_port_and_the_options(launch: Launch, line: str) -> None:
    assert " ".join(command_line(launch, 7)) == line


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ({"program": "tgi"}, "must be one of llama.cpp, vllm, sglang, command (got 'tgi')"),
        ({"program": "vllm"}, "an engine of vllm needs its weights, a folder or name"),
        ({"program": "llama.cpp"}, "needs its weights, a GGUF file"),
        ({"program": "command"}, "an engine of command needs a command that starts it"),
        ({"program": "vllm", "weights": "w", "command": "x --api-key wxyz"}, "takes no command (got 'x')"),
        ({"program": "command", "command": "serve --api-key wxyz"}, "must take its {port} (got 'serve')"),
    ],
)
def test_what_cannot_be_started_is_refused_before_anything_is(written: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Launch(**written)
    assert sentence in caught.value.message


@pytest.mark.parametrize(
    ("launch", "sentence"),
    [
        (Launch("llama.cpp", "/no/such.gguf"), "the weights /no/such.gguf are not on this node"),
        (
            Launch("command", command="no-such-program {port}"),
            "'no-such-program', the command that starts command, is not",
        ),
    ],
)
async def test_what_is_not_on_the_node_is_named_and_not_tried_again(launch: Launch, sentence: str) -> None:
    with pytest.raises(EngineError) as caught:
        await EngineProcess(launch).wake()
    assert sentence in caught.value.message
    assert caught.value.is_final


async def test_an_engine_that_ends_before_it_answers_is_told_with_its_last_lines() -> None:
    command = f"{sys.executable} -c \"print('CUDA out of memory'); exit(3)\" {{port}}"
    engine = EngineProcess(Launch("command", command=command))
    with pytest.raises(EngineError, match=r"command has ended; its last lines: CUDA out of memory"):
        await engine.wake()
    assert engine.load()["is_asleep"]


async def test_an_engine_that_never_answers_is_ended_and_told() -> None:
    command = f"{sys.executable} -c \"import time; print('loading', flush=True); time.sleep(60)\" {{port}}"
    engine = EngineProcess(Launch("command", command=command, start_s=2.0))
    with pytest.raises(EngineError, match=r"did not answer within 2 s; its last lines: loading"):
        await engine.wake()
    assert engine.load()["is_asleep"]


@asynccontextmanager
async def awake(command: str = BASELINES) -> AsyncIterator[EngineProcess]:
    engine = EngineProcess(Launch("command", name="baseline-greedy", slots=3, command=command))
    await engine.wake()
    try:
        yield engine
    finally:
        await engine.sleep()


def _body(**more: object) -> bytes:
    return json.dumps({"model": "baseline-greedy", "messages": [{"role": "user", "content": "Hi"}], **more}).encode()


async def _answer(engine: EngineProcess, body: bytes) -> tuple[Mapping[str, Any], bytes]:
    head, *chunks = [part async for part in engine.chat(CHAT, body, "r-1")]
    assert isinstance(head, Mapping)
    return head, b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))


@pytest.mark.slow
async def test_a_started_engine_answers_whole_and_in_a_stream_and_refuses_with_its_own_words() -> None:
    async with awake() as engine:
        assert engine.load() == {"running": 0, "slots": 3, "models": ["baseline-greedy"], "is_asleep": False}
        head, body = await _answer(engine, _body())
        assert head == {"status": 200, "content_type": "application/json"}
        assert json.loads(body)["choices"][0]["message"]["role"] == "assistant"
        head, body = await _answer(engine, _body(stream=True))
        assert head["content_type"] == "text/event-stream"
        assert body.endswith(b"data: [DONE]\n\n")
        head, body = await _answer(engine, b'{"model": "another"}')
        assert head["status"] in (400, 404)
        assert json.loads(body)["error"]["message"]
    assert engine.load()["is_asleep"]
    with pytest.raises(EngineError, match="does not run"):
        await _answer(engine, _body())


@pytest.mark.slow
async def test_an_aborted_request_ends_and_a_killed_engine_is_found_asleep_and_starts_anew() -> None:
    async with awake(f"{BASELINES} --faults slow:mean_s=60") as engine:
        asking = asyncio.create_task(_answer(engine, _body()))
        async with asyncio.timeout(10):
            while not engine.load()["running"]:  # noqa: ASYNC110 - an engine tells nobody of its requests
                await asyncio.sleep(0.01)
        await engine.abort("r-1")
        with pytest.raises(EngineError, match="aborted"):
            await asking
        assert engine.load()["running"] == 0

        child = engine._child
        assert child is not None
        _kill_tree(child._keeper.pid)
        async with asyncio.timeout(10):
            await child.ended()
        assert engine.load()["is_asleep"]
        with pytest.raises(EngineError, match="has ended"):
            await _answer(engine, _body())
        await engine.wake()
        assert not engine.load()["is_asleep"]


ENDLESS = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\\r\\na\\n\\n\\r\\n")
        time.sleep(60)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


async def test_a_stream_that_has_begun_is_aborted_and_its_id_is_free_again(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    async with awake(f"{sys.executable} {script} {{port}}") as engine, asyncio.timeout(10):
        parts = engine.chat(CHAT, _body(stream=True), "r-1")
        assert [await anext(parts), await anext(parts)] == [
            {"status": 200, "content_type": "text/event-stream"},
            b"a\n\n",
        ]
        reading = asyncio.ensure_future(anext(parts))
        await asyncio.sleep(0)
        await engine.abort("r-1")
        assert engine.load()["running"] == 0
        again = engine.chat(CHAT, _body(stream=True), "r-1")
        await anext(again)
        with pytest.raises(EngineError, match="aborted"):
            await reading
        assert engine.load()["running"] == 1
        await again.aclose()  # type: ignore[attr-defined]
        assert engine.load()["running"] == 0


def _kill_tree(keeper: int) -> None:
    """Kill what a keeper started, as the kernel does that is out of memory."""
    for pid in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
