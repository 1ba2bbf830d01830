"""Tool calls in replies: how they are read, checked, run and answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from headgate.environments.tools import CallProblem, Tool, Toolbox, ToolCall, python_tool, read_call, tool_call


class Doubling(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int


async def doubled(arguments):
    return str(2 * arguments.number)


TOOLS = Toolbox([Tool("double", "Double a number.", Doubling, doubled)])


def test_a_call_is_read_wherever_it_stands():
    reply = f"I will double it.\n{tool_call('double', number=4)}\nLet us see."
    assert read_call(reply) == ToolCall("double", {"number": 4})


def test_a_call_in_a_thought_is_none():
    assert read_call(f"<think>{tool_call('double', number=4)}</think> done") is None


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("<tool_call>{}", "has no </tool_call>"),
        ("<tool_call>{1}</tool_call>", "is no JSON"),
        ("<tool_call>[1]</tool_call>", "is a JSON object"),
        ('<tool_call>{"name": 3}</tool_call>', "is a JSON object"),
        ('<tool_call>{"name": "double", "arguments": [1]}</tool_call>', "are a JSON object"),
        (tool_call("double", number=1) + tool_call("double", number=2), "Only one tool call"),
        (tool_call("double", number="x" * 30_000), "at most 20000 are read"),
        (f"<tool_call>{'[' * 5_000}</tool_call>", "is no JSON"),
    ],
)
def test_a_call_that_cannot_be_read_is_told(reply, says):
    problem = read_call(reply)
    assert isinstance(problem, CallProblem)
    assert says in problem.says


@given(st.text(alphabet='<>/tol_cal{}"name:,1 ', max_size=80))
def test_reading_never_raises(text):
    read_call(f"<tool_call>{text}</tool_call>{text}")


async def test_a_call_is_answered_with_what_the_tool_returns():
    assert await TOOLS.answered(tool_call("double", number=21)) == "<tool_response>\n42\n</tool_response>"
    assert await TOOLS.answered("no call at all") is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (tool_call("duoble", number=1), "did you mean 'double'?"),
        (tool_call("double", number="many"), "number: Input should be a valid integer"),
        (tool_call("double"), "number: Field required"),
        (tool_call("double", number=1, colour="red"), "colour: Extra inputs are not permitted"),
    ],
)
async def test_a_wrong_call_is_told_to_the_model(call, says):
    assert says in (await TOOLS.answered(call) or "")


def test_the_model_is_told_the_schema_of_every_tool():
    assert '"name":"double"' in TOOLS.instructions
    assert '"number":{"type":"integer"}' in TOOLS.instructions


async def test_programs_run_in_the_sandbox_with_their_input():
    box = Toolbox([python_tool("3 4")])
    assert "\n7\n" in (await box.answered(tool_call("python", code="print(sum(map(int, input().split())))")) or "")
    assert "printed nothing" in (await box.answered(tool_call("python", code="pass")) or "")
    assert "ZeroDivisionError" in (await box.answered(tool_call("python", code="1 / 0")) or "")
    assert "failed" in (await box.answered(tool_call("python", code="import socket; socket.socket()")) or "")


async def test_a_long_result_loses_its_middle():
    told = await Toolbox([python_tool()]).answered(tool_call("python", code="print('a' * 50_000 + 'END')")) or ""
    assert len(told) < 4_200
    assert "characters are left out" in told
    assert "END" in told
