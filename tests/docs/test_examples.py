"""The examples of the documentation do what the text around them says."""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from headgate.core import ChatReply, Message
from headgate.environments import Continue, Environment, converse
from headgate.environments.tools import tool_call
from headgate.storage import open_store
from tests.docs.pages import blocks
from tests.storage.samples import START, many


def _example(page: str, containing: str) -> dict[str, Any]:
    """Return the names that an example defines."""
    block = next(b for b in blocks("python") if b.page == page and containing in b.code)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block.code, f"{block.page}:{block.line}", "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def sums() -> Environment:
    return _example("docs/how-to/own-environment.md", "class Sums")["Sums"]()


async def _score_of(environment: Environment, kind: str, index: int) -> float | None:
    async def chat(messages: Sequence[Message]) -> ChatReply:
        text = await environment.baseline(kind, index, seed=index, conversation=messages, rng=random.Random(1))
        return ChatReply(text)

    return (await converse(environment, index, index, chat)).score


async def test_the_environment_of_the_how_to_scores_its_own_solver_with_1(sums: Environment) -> None:
    assert isinstance(sums, Environment)
    assert [await _score_of(sums, "solver", index) for index in range(20)] == [1.0] * 20


async def test_the_environment_of_the_how_to_scores_a_guess_with_0(sums: Environment) -> None:
    assert [await _score_of(sums, "random", index) for index in range(5)] == [0.0] * 5


async def test_the_environment_of_the_how_to_poses_equal_tasks_for_equal_numbers(sums: Environment) -> None:
    first, second = await sums.open(3, 77), await sums.open(3, 77)
    assert first.opening == second.opening


@pytest.fixture
def boxes() -> Environment:
    return _example("docs/how-to/own-environment.md", "class Boxes")["Boxes"]()


async def test_the_environment_with_a_tool_is_solved_by_who_calls_it_and_not_by_who_guesses(boxes: Environment) -> None:
    assert isinstance(boxes, Environment)
    means = {
        kind: fmean([await _score_of(boxes, kind, index) or 0.0 for index in range(40)])
        for kind in ("random", "greedy", "solver")
    }
    assert means["solver"] == 1.0
    assert means["random"] < 0.5
    assert means["greedy"] < 0.8


async def test_the_tool_of_the_how_to_tells_the_model_its_mistakes(boxes: Environment) -> None:
    episode = await boxes.open(0, 7)
    misspelt = await episode.answer(tool_call("weigh", left="A", rigth="B"))
    unknown = await episode.answer(tool_call("weigh", left="A", right="Z"))
    assert isinstance(misspelt, Continue)
    assert isinstance(unknown, Continue)
    assert "The arguments of weigh are wrong" in misspelt.messages[0].content
    assert "There is no box 'Z'" in unknown.messages[0].content


async def test_the_program_of_the_how_to_reads_what_it_is_given() -> None:
    tools = _example("docs/how-to/own-environment.md", "import Toolbox, python_tool")["tools"]
    told = await tools.answered(tool_call("python", code="import sys\nprint(sum(map(int, sys.stdin)))"))
    assert told == "<tool_response>\n12\n\n</tool_response>"


@pytest.mark.long
async def test_the_notebook_of_the_readme_scores_the_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    block = next(b for b in blocks("python") if b.page == "README.md" and "headgate.evaluate" in b.code)
    assert len(block.code.splitlines()) <= 10
    names: dict[str, Any] = {"__name__": "notebook"}
    cell = compile(block.code, f"{block.page}:{block.line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    await eval(cell, names)
    assert names["scores"].samples.height == 3 * 2 * 20
    assert "baseline-solver@main" in repr(names["scores"])
    assert "120 of 120" in capfd.readouterr().err


def test_the_first_lines_of_python_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _example("docs/tutorials/evaluate-two-models.md", "load_settings")
    assert capsys.readouterr().out == "main affine:sat 100\n"


async def test_two_weeks_of_a_model_are_compared_as_the_page_on_stored_samples_says(tmp_path: Path) -> None:
    weeks = [many(60), many(60, first=60, at=START + 8 * 86_400)]
    new = [replace(one, index=number % 60, score=0.0, success=False) for number, one in enumerate(weeks[1])]
    store = open_store(str(tmp_path))
    await store.put_batch("b", [*(replace(one, index=one.sequence) for one in weeks[0]), *new])
    page = await _example("docs/reference/stored-samples.md", "compare_weeks")["compare_weeks"](
        str(tmp_path), "org/a@main"
    )
    assert "Differences from the reference, before" in page
    assert "-0.500" in page
