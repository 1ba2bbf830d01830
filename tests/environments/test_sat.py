"""The rules of affine:sat and affine:sat-hard."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.environments import environment
from headgate.environments.measurement import baseline_episode
from headgate_environments.affine.sat import Formula, planted_formula, read_assignment
from tests.examples import examples

SHAPES = {"affine:sat": (15, 10), "affine:sat-hard": (20, 3)}


def test_the_published_shape_has_63_clauses_of_10_literals():
    formula = planted_formula(7, 15, 10)
    assert len(formula.clauses) == 63
    assert all(len({abs(literal) for literal in clause}) == 10 for clause in formula.clauses)


@given(index=st.integers(0, 10**9), shape=st.sampled_from(list(SHAPES.values())))
@settings(max_examples=examples(50), deadline=None)
def test_the_planted_solution_satisfies_every_clause(index, shape):
    formula = planted_formula(index, *shape)
    assert formula.first_unsatisfied(formula.planted) is None


def test_a_variable_left_out_satisfies_neither_sign():
    formula = Formula(((1, 2), (-1, 2)), {1: True, 2: True})
    assert formula.first_unsatisfied({1: True}) == 2
    assert formula.first_unsatisfied({}) == 1
    assert formula.first_unsatisfied({2: True}) is None


def test_the_last_assignment_of_a_variable_wins():
    assert read_assignment("x1=False, x2=0 ... no: x1=True, x3=1") == {1: True, 2: False, 3: True}


@given(st.dictionaries(st.integers(1, 20), st.booleans()), st.sampled_from([", ", "\n", " and "]))
def test_every_written_assignment_is_read_back(assignment, separator):
    written = separator.join(f"x{name}={value}" for name, value in assignment.items())
    assert read_assignment(f"Here it is: {written}.") == assignment


@given(st.text())
def test_reading_an_assignment_never_fails(reply):
    read_assignment(reply)


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize(
    "reply",
    [
        "",
        "UNSAT",
        "x1 = True, x2 = False",
        "x1=**True**, x2=**False**",
        "True " * 200_000,
        "x" + "9" * 100_000 + "=True",
        "x1=true",
        "a\ufffdb\x00",
    ],
    ids=["empty", "unsat", "blanks", "markup", "1 MB", "huge name", "lower case", "bytes"],
)
async def test_what_is_no_assignment_scores_0(name, reply):
    episode = await environment(name).open(1, 0)
    score = await episode.answer(reply)
    assert (score.value, score.success) == (0.0, False)
    assert score.why


@pytest.mark.parametrize("name", list(SHAPES))
async def test_the_prompt_said_back_scores_0(name):
    for index in range(20):
        episode = await environment(name).open(index, 0)
        assert (await episode.answer(episode.opening[0].content)).value == 0.0


@pytest.mark.parametrize("name", list(SHAPES))
async def test_one_wrong_clause_scores_0_and_all_right_scores_1(name):
    formula = planted_formula(5, *SHAPES[name])
    episode = await environment(name).open(5, 0)
    right = ", ".join(f"x{variable}={value}" for variable, value in formula.planted.items())
    first = formula.clauses[0]
    wrong = ", ".join(f"x{abs(literal)}={literal < 0}" for literal in first)
    assert (await episode.answer(right)).value == 1.0
    score = await episode.answer(f"{right}, {wrong}")
    assert score.value == 0.0
    assert "not satisfied" in score.why


@pytest.mark.parametrize(("name", "tasks", "tolerance"), [("affine:sat", 400, 0.03), ("affine:sat-hard", 400, 0.01)])
async def test_chance_is_what_the_spec_says(name, tasks, tolerance):
    scores = [(await baseline_episode(environment(name), "random", index)).score for index in range(tasks)]
    assert sum(scores) / tasks == pytest.approx(environment(name).spec.chance_score, abs=tolerance)


async def test_greedy_reads_the_formula_and_not_the_index():
    sat = environment("affine:sat")
    conversation = (await sat.open(3, 0)).opening
    replies = {await sat.baseline("greedy", index, 0, conversation, random.Random(0)) for index in (3, 4)}
    assert len(replies) == 1
