"""The examples of the documentation do what the text around them says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.core import ChatReply, Message
from headgate.environments import Environment, converse
from tests.docs.pages import blocks


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


def test_the_first_lines_of_python_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _example("docs/getting-started.md", "load_settings")
    assert capsys.readouterr().out == "main affine:sat 100\n"
