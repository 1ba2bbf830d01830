"""Questions on tables: one right answer each, found by programs only."""

from __future__ import annotations

import csv
import hashlib
import io

import pytest

from headgate.core import seed_of
from headgate.environments import Continue, Score
from headgate.environments.measurement import baseline_episode
from headgate.environments.tools import tool_call
from headgate_environments.tables import SPEC, as_csv, table_task, tables

ENVIRONMENT = tables()


async def opened(index):
    return await ENVIRONMENT.open(index, seed_of(SPEC.name, index))


async def test_the_solver_is_always_right_and_haste_is_not():
    solved = [await baseline_episode(ENVIRONMENT, "solver", index) for index in range(12)]
    assert [result.score for result in solved] == [1.0] * 12
    hasty = [await baseline_episode(ENVIRONMENT, "greedy", index) for index in range(12)]
    assert 0 < sum(result.score or 0 for result in hasty) < 9


def test_answers_are_those_of_the_table_as_it_is_written():
    for index in range(200):
        task = table_task(seed_of(SPEC.name, index))
        rows = list(csv.DictReader(io.StringIO(as_csv(task.rows))))
        assert len(rows) == len(task.rows)
        assert {row["price"] for row in rows} == {f"{order.price / 100:.2f}" for order in task.rows}
        assert task.question.answer


async def test_the_answer_is_not_in_the_opening():
    said = 0
    for index in range(100):
        episode = await opened(index)
        answer = table_task(seed_of(SPEC.name, index)).question.answer
        said += len(answer) > 3 and answer in episode.opening[0].content
    assert said <= 15  # a customer or an order may be among the first five rows by chance


async def test_any_reply_but_an_answer_costs_a_round():
    episode = await opened(3)
    for _ in range(SPEC.max_rounds - 1):
        assert isinstance(await episode.answer("hm"), Continue)
    end = await episode.answer(tool_call("python", code="print(1)"))
    assert isinstance(end, Score)
    assert (end.value, end.why) == (0.0, "no answer in 8 replies")


@pytest.mark.parametrize(
    "reply", ["<answer></answer>", "<answer>nan</answer>", "<answer>inf</answer>", f"<answer>{'9' * 5_000}</answer>"]
)
async def test_an_answer_that_is_none_scores_nothing(reply):
    end = await (await opened(0)).answer(reply)
    assert isinstance(end, Score)
    assert end.value == 0.0


async def test_numbers_may_be_written_in_any_way():
    index = next(i for i in range(50) if "." in table_task(seed_of(SPEC.name, i)).question.answer)
    answer = table_task(seed_of(SPEC.name, index)).question.answer
    end = await (await opened(index)).answer(f"It is <answer> {answer}0 </answer>.")
    assert isinstance(end, Score)
    assert end.value == 1.0


async def test_tasks_are_the_same_everywhere():
    texts = [(await opened(index)).opening[0].content for index in (0, 7, 999_999)]
    assert [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts] == GOLDEN


GOLDEN = ["947645c079074655", "ec0763340d7bcf91", "96d889cb216fe828"]


async def test_a_program_may_print_the_tags_of_an_answer():
    episode = await opened(0)
    told = await episode.answer(tool_call("python", code="print('<answer>', 6 * 7, '</answer>')"))
    assert isinstance(told, Continue)
    assert "<answer> 42 </answer>" in told.messages[0].content
