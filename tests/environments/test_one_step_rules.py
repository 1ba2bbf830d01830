"""The one-step rules of `affine:ded`'s greedy baseline, and the program that follows them."""

from __future__ import annotations

import pytest

from headgate.environments import SANDBOX
from headgate.environments.answers import last_python_fence
from headgate_environments.affine.codeio import Case
from headgate_environments.affine.ded import Deduction, DeductionEnvironment
from headgate_environments.affine.one_step_rules import fitting_rule


@pytest.mark.parametrize(
    ("examples", "given", "wanted"),
    [
        ([({"n": 44}, 43), ({"n": 7}, 6)], {"n": 10}, 9),
        ([({"a": 3, "b": 4}, 5.0), ({"a": 6, "b": 8}, 10.0)], {"a": 5, "b": 12}, 13.0),
        ([({"a": 1, "b": 2}, {"left": 1, "right": 2}), ({"a": 5, "b": 3}, {"left": 5, "right": 3})],
         {"a": 7, "b": 8}, {"left": 7, "right": 8}),
        ([({"s": "abc"}, "cba"), ({"s": "xy"}, "yx")], {"s": "12"}, "21"),
    ],
)  # fmt: skip
def test_a_rule_that_fits_the_examples_is_found(examples, given, wanted):
    assert fitting_rule(examples)(given) == wanted


def test_where_no_rule_fits_the_first_example_is_repeated():
    assert fitting_rule([({"n": 1}, "one"), ({"n": 2}, "two")])({"n": 3}) == "one"


def test_huge_numbers_do_not_stall_it():
    assert fitting_rule([({"n": 10**30}, 10**30 - 1), ({"n": 5}, 4)])({"n": 3}) == 2


async def test_the_greedy_reply_is_a_program_that_follows_the_rule(monkeypatch):
    examples = (Case('{"n": 44}', "43"), Case('{"n": 7}', "6"))
    environment = DeductionEnvironment()

    async def task(index, seed):
        return Deduction(None, examples, ())

    monkeypatch.setattr(environment._tasks, "get", task)
    reply = await environment.baseline("greedy", 0, 0, (), None)
    run = await SANDBOX.run(last_python_fence(reply), '{"n": 10}\n')
    assert (run.is_clean, run.stdout.strip()) == (True, "9")
