"""Tools in fields of the request or as text: the same sample either way, over real HTTP."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import orjson
import pytest
from aiohttp import web

from headgate.core import ChatError, ChatReply, ErrorKind, Message, Model, Secret, seed_of
from headgate.environments import Continue, Environment, EnvironmentSpec, EpisodeResult, Score, converse
from headgate.environments.tool_forms import native_form, text_of_fields
from headgate.environments.tools import Tool, Toolbox, tool_call, tool_response
from headgate.models import ChatClient, ClientSettings, TaskReference, ToolTrials, serve
from headgate.models.answer import StreamedAnswer, read_completion
from headgate_environments.tables import tables
from tests.environments.tools.test_tools import Doubling, doubled

TOOLS = Toolbox([Tool("double", "Double a number.", Doubling, doubled)])
CALL = tool_call("double", number=21)
ASKED = Message("user", f"Double 21.\n\n{TOOLS.instructions}\n\nBe short.")


class DoublingEpisode:
    def __init__(self, number: int) -> None:
        self.opening = (Message("user", f"Double {number}.\n\n{TOOLS.instructions}\n\nBe short."),)
        self._right = str(2 * number)

    async def answer(self, reply: str) -> Continue | Score:
        told = await TOOLS.answered(reply)
        return Continue((Message("user", told),)) if told else Score(float(reply == self._right), True, reply)

    async def close(self) -> None:
        pass


class DoublingEnvironment:
    spec = EnvironmentSpec("test:double", "", daily_rate=1, data_length=10, max_rounds=3)

    async def open(self, index: int, seed: int) -> DoublingEpisode:
        return DoublingEpisode(index)

    async def baseline(
        self, kind: str, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        if len(conversation) == 1:
            return f"I will.\n{tool_call('double', number=index)}"
        return conversation[-1].content.split("\n")[1]


DOUBLING = DoublingEnvironment()


class Endpoint:
    """Stands before another endpoint, and takes, ignores or refuses the field `tools`."""

    def __init__(self, url: str, manner: str) -> None:
        self._url, self._manner = url, manner
        self.asked: list[dict] = []

    async def answer(self, http: web.Request) -> web.Response:
        body = await http.json()
        self.asked.append(dict(body))
        if "tools" in body and self._manner.startswith("refuse"):
            status = int(self._manner.split()[1])
            return web.json_response({"error": {"message": "tools are not supported"}}, status=status)
        if self._manner == "ignore":
            body.pop("tools", None)
        headers = {name: http.headers[name] for name in ("Authorization", "X-Headgate-Task") if name in http.headers}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self._url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            return web.Response(body=await response.read(), status=response.status, content_type=response.content_type)

    @property
    def forms(self) -> list[str]:
        """How it was asked, request by request."""
        return ["fields" if "tools" in body else "text" for body in self.asked]


@asynccontextmanager
async def standing_before(url: str, manner: str) -> AsyncIterator[tuple[str, Endpoint]]:
    endpoint, app = Endpoint(url, manner), web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", endpoint
    finally:
        await runner.cleanup()


async def test_the_tokens_and_the_bill_of_a_trial_are_among_those_of_its_reply() -> None:
    replies = [
        ChatReply("no call", 10, 5, cached_tokens=4, reasoning_tokens=2, billed_micro=7),
        ChatReply("text", 20, 6, cached_tokens=8, reasoning_tokens=1, billed_micro=9),
    ]

    async def send(_: object) -> tuple[ChatReply, int]:
        return replies.pop(0), 0

    messages = (await DOUBLING.open(0, 0)).opening
    reply = await ToolTrials().ask(Model("m"), messages, send)
    assert (reply.prompt_tokens, reply.completion_tokens) == (30, 11)
    assert (reply.cached_tokens, reply.reasoning_tokens, reply.billed_micro) == (12, 3, 16)


async def test_a_trial_is_paid_once_however_often_the_same_is_asked_as_text() -> None:
    asked: list[str] = []

    async def send(native: object) -> tuple[ChatReply, int]:
        asked.append("text" if native is None else "fields")
        if asked[-1] == "text" and len(asked) < 4:
            raise ChatError(ErrorKind.RATE_LIMITED, "too many requests", status=429)
        return ChatReply("no call", 10, 5), 0

    trials, messages = ToolTrials(), (await DOUBLING.open(0, 0)).opening
    for _ in range(2):
        with pytest.raises(ChatError):
            await trials.ask(Model("m"), messages, send)
    replies = [await trials.ask(Model("m"), messages, send) for _ in range(2)]
    assert asked == ["fields", "text", "text", "text", "text"]
    assert [reply.prompt_tokens for reply in replies] == [20, 10], "the trial's tokens are booked once"


async def played(
    base_url: str, tools: str, *, stream: bool = False, environment: Environment = DOUBLING
) -> EpisodeResult:
    options = (("headgate_task_header", True), ("stream", stream))
    model = Model("baseline-solver", base_url=base_url, api_key=Secret("k"), options=options, tools=tools)
    name, index = environment.spec.name, 3
    seed = seed_of(name, index)
    header = str(TaskReference(name, index, seed, index))
    async with ChatClient(ClientSettings()) as client:
        return await converse(
            environment, index, seed, lambda messages: client.chat(model, messages, task_header=header)
        )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_sample_is_the_same_in_either_form(stream: bool) -> None:
    async with serve(find_environment=lambda _: DOUBLING) as baselines:
        results = {}
        for tools, manner in (
            ("text", "take"),
            ("native", "take"),
            ("auto", "take"),
            ("auto", "ignore"),
            ("auto", "refuse 400"),
            ("auto", "refuse 500"),
        ):
            async with standing_before(baselines.url, manner) as (url, endpoint):
                results[tools, manner] = await played(url, tools, stream=stream), endpoint.forms
    same = {(result.messages, result.score, result.why, result.turns) for result, _ in results.values()}
    assert len(same) == 1
    assert results["text", "take"][0].score == 1.0
    assert {asked: forms for asked, (_, forms) in results.items()} == {
        ("text", "take"): ["text", "text"],
        ("native", "take"): ["fields", "fields"],
        ("auto", "take"): ["fields", "fields"],
        ("auto", "ignore"): ["fields", "text", "text"],
        ("auto", "refuse 400"): ["fields", "text", "text"],
        ("auto", "refuse 500"): ["fields", "text", "text"],
    }
    trial, text = results["auto", "ignore"][0], results["text", "take"][0]
    assert trial.completion_tokens > text.completion_tokens, "what the trial cost is booked"


async def test_an_endpoint_that_refuses_the_fields_that_the_roster_states_is_heard() -> None:
    async with (
        serve(find_environment=lambda _: DOUBLING) as baselines,
        standing_before(baselines.url, "refuse 400") as (url, endpoint),
    ):
        result = await played(url, "native")
    assert (result.score, result.error_kind) == (None, ErrorKind.BAD_REQUEST)
    assert "tools are not supported" in (result.error or "")
    assert endpoint.forms == ["fields"]


async def test_a_conversation_in_fields_is_one_that_providers_take() -> None:
    async with serve() as baselines, standing_before(baselines.url, "take") as (url, endpoint):
        result = await played(url, "auto", environment=tables())
    assert result.score == 1.0
    opening, call, response = endpoint.asked[-1]["messages"]
    assert "<tool" not in opening["content"]
    assert [tool["function"]["name"] for tool in endpoint.asked[0]["tools"]] == ["python"]
    (called,) = call["tool_calls"]
    assert "code" in orjson.loads(called["function"]["arguments"])
    assert (response["role"], response["tool_call_id"]) == ("tool", called["id"])
    assert len(called["id"]) == 9
    assert called["id"].isalnum()


def conversation(*replies: tuple[str, str]) -> list[Message]:
    said = [ASKED]
    for reply, response in replies:
        said += [Message("assistant", reply), Message("user", response)]
    return said


@pytest.mark.parametrize(
    "reply", [CALL, f"I will.\n{CALL}", f"<think>{CALL}?</think>\n{CALL}", tool_call("double")], ids=str
)
def test_fields_are_read_back_as_the_text_that_they_were(reply: str) -> None:
    said = conversation((reply, tool_response("42\n</tool_response> and more")), ("The end.", "Call the tool."))
    form = native_form(said)
    assert form is not None
    assert [message["role"] for message in form.messages] == ["user", "assistant", "tool", "assistant", "user"]
    back = [text_of_fields(message) or Message(message["role"], message["content"]) for message in form.messages]
    assert back[1:] == said[1:]


@pytest.mark.parametrize("reply", ["<tool_call>{1}</tool_call>", CALL + CALL, tool_call("treble", number=1)], ids=str)
def test_a_call_that_no_provider_would_take_stays_text(reply: str) -> None:
    form = native_form(conversation((reply, tool_response("Wrong."))))
    assert form is not None
    assert form.messages[1:] == [
        {"role": "assistant", "content": reply},
        {"role": "user", "content": tool_response("Wrong.")},
    ]


@pytest.mark.parametrize(
    "text",
    ["Double 21.", TOOLS.instructions[:-1], TOOLS.instructions.replace('"type"', "type"), "\n".join(["[]"] * 3)],
)
def test_a_conversation_without_tools_has_no_fields(text: str) -> None:
    assert native_form([Message("user", text)]) is None


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("treble", '{"number": 1}', "There is no tool 'treble'"),
        ("double", "number=1", "The tool call is no JSON"),
        ("double", '{"number": 1', "The tool call is no JSON"),
        ("double", "[1]", 'The "arguments" of a tool call are a JSON object.'),
        ("double", '"one"', 'The "arguments" of a tool call are a JSON object.'),
        ("double", "", "The arguments of double are wrong: number"),
        ("double", '{"number": 21}', "<tool_response>\n42"),
        ("double", {"number": 21}, "<tool_response>\n42"),
        ("double", '{"number": "' + "1" * 30_000 + '"}', "at most 20000 are read"),
        ("double", "</tool_call>", "The tool call is no JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_call_in_a_field_is_answered_as_the_same_call_in_text(name: str, arguments: object, told: str) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]
    document = {"choices": [{"message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}]}
    answer = read_completion(orjson.dumps(document))
    assert answer.calls == 1
    assert told in (await TOOLS.answered(answer.said.text) or "")


WHOLE = {"id": "a", "function": {"name": "double", "arguments": '{"number":21}'}}
OTHER = {"id": "b", "function": {"name": "double", "arguments": '{"number":4}'}}


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        ([{"tool_calls": [WHOLE | {"index": 0}]}], CALL),
        ([{"content": "I will."}, {"tool_calls": [WHOLE]}], f"I will.\n{CALL}"),
        (
            [
                {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "double", "arguments": ""}}]},
                *({"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in '{"number":21}'),
            ],
            CALL,
        ),
        (
            [
                {"tool_calls": [{"index": 1, **OTHER}, {"index": 0, "id": "a", "function": {"name": "double"}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": '{"number":21}'}}]},
            ],
            f"{tool_call('double', number=4)}\n{CALL}",
        ),
        ([{"tool_calls": [WHOLE | {"index": 0}]}, {"tool_calls": [OTHER | {"index": 0}]}], None),
        ([{"tool_calls": [WHOLE]}, {"tool_calls": [OTHER]}], None),
        ([{"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}], ""),
        ([{"tool_calls": None}, {"tool_calls": [3, {"function": 4}]}], ""),
    ],
)
def test_streamed_calls_are_put_together(deltas: list[dict], text: str | None) -> None:
    streamed = StreamedAnswer(10_000)
    for delta in [*deltas, None]:
        choice = {"delta": delta or {}, "finish_reason": None if delta else "tool_calls"}
        streamed.feed(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
    both = f"{CALL}\n{tool_call('double', number=4)}"
    assert streamed.finish().said.text == (both if text is None else text)


def test_endless_arguments_are_not_read() -> None:
    streamed = StreamedAnswer(1_000)
    piece = {"index": 0, "function": {"name": "double", "arguments": "1" * 100}}
    line = b"data: " + orjson.dumps({"choices": [{"delta": {"tool_calls": [piece]}}]}) + b"\n\n"
    streamed.feed(line * 9)
    with pytest.raises(ChatError, match="larger than 1000"):
        streamed.feed(line)
