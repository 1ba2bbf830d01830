"""The environment `headgate:tables`: its episodes, its score and its baselines."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core import Message
from headgate.environments import (
    BaselineKind,
    Continue,
    EnvironmentSpec,
    Score,
    Toolbox,
    failed,
    last_tagged,
    passed,
    python_tool,
    tool_call,
    without_thinking,
)
from headgate_environments.tables.questions import CUSTOMERS, Order, Question, as_csv, drawn_question, orders

MAX_ROUNDS: Final = 8
SHOWN_ROWS: Final = 5
ANSWER_CHARS: Final = 100
"""A longer answer is no number and no name."""

_CALL: Final = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)

_TOLERANCE: Final = 0.005

SPEC: Final = EnvironmentSpec(
    name="headgate:tables",
    summary="Answer a question on a table by Python programs in a sandbox, in up to 8 rounds",
    daily_rate=100.0,
    data_length=1_000_000,
    max_rounds=MAX_ROUNDS,
    reply_chars=100_000,
    licence="Apache-2.0",
    source="Headgate; tables and questions are generated from the index",
    chance_score=0.006,
    runs_programs=True,
    tasks_are_drawn=True,
)


@dataclass(frozen=True, slots=True)
class TableTask:
    """A table and a question on it."""

    rows: tuple[Order, ...]
    question: Question


class TableEpisode:
    """One question in progress. Owned by one worker; holds memory only."""

    def __init__(self, task: TableTask) -> None:
        self._task = task
        self._rounds = 0
        table = as_csv(task.rows)
        about = "The whole table, header included, comes on standard input; each call begins anew."
        self._toolbox = Toolbox([python_tool(table, about)])
        shown = "".join(table.splitlines(keepends=True)[: SHOWN_ROWS + 1])
        text = (
            f"A table of {len(task.rows)} orders. Its first lines:\n\n{shown}\n"
            f"Cancelled orders do not count, anywhere.\n\n{task.question.words}\n\n{self._toolbox.instructions}\n\n"
            f"You have {MAX_ROUNDS} replies. "
            "End with the answer alone, a number or a name, between <answer> and </answer>."
        )
        self.opening = (Message("user", text),)

    async def answer(self, reply: str) -> Continue | Score:
        """Score the answer in `reply`, or run the call in it; an answer ends the episode whatever else is there."""
        self._rounds += 1
        # A program may print the tags: what is in a call is no answer.
        said = last_tagged(_CALL.sub("", without_thinking(reply)), "answer")
        if said is not None:
            return _scored(said.strip(), self._task.question.answer)
        if self._rounds >= MAX_ROUNDS:
            return failed(f"no answer in {MAX_ROUNDS} replies")
        told = await self._toolbox.answered(reply)
        return Continue((Message("user", told or "Call the tool, or end with <answer>…</answer>."),))

    async def close(self) -> None:
        """Free nothing."""


class Tables:
    """Questions on tables. Stateless; programs run in the sandbox."""

    spec: Final = SPEC

    async def open(self, index: int, seed: int) -> TableEpisode:
        """Begin task `index`; all of it is drawn from `seed`, which the index gives."""
        del index
        return TableEpisode(table_task(seed))

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Guess a number or a name, run a program that forgets cancelled orders (`greedy`), or run the right one."""
        del index
        if kind == "random":
            return f"<answer>{rng.choice((rng.choice(CUSTOMERS), str(rng.randint(1, 1_200))))}</answer>"
        question = table_task(seed).question
        if len(conversation) == 1:
            return tool_call("python", code=question.program if kind == "solver" else question.hasty_program)
        result = conversation[-1].content.removeprefix("<tool_response>").removesuffix("</tool_response>")
        return f"<answer>{result.strip()}</answer>"


def tables() -> Tables:
    """Return `headgate:tables`."""
    return Tables()


def table_task(seed: int) -> TableTask:
    """Return the task of a seed."""
    rng = random.Random(f"{SPEC.name}/{seed}")
    rows = orders(rng)
    return TableTask(rows, drawn_question(rng, rows))


def _scored(said: str, right: str) -> Score:
    if not said or len(said) > ANSWER_CHARS:
        return failed(f"an answer of {len(said)} characters")
    if said.casefold() == right.casefold() or _is_same_number(said, right):
        return passed(f"answered {right}")
    return failed(f"answered {said!r}, right is {right}")


def _is_same_number(said: str, right: str) -> bool:
    try:
        return abs(float(said) - float(right)) < _TOLERANCE
    except ValueError:
        return False
