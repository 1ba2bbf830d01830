"""What a last reply is worth, whatever a package's scorer makes of it."""

from __future__ import annotations

from headgate.core import Message
from headgate_environments.collections.resumed import _problem_of

TALK = (
    Message("user", "What is the capital of France, in one word?"),
    Message("assistant", "The capital of France is Paris."),
    Message("user", "Are you sure?"),
)


def test_whoever_stays_with_an_answer_does_not_repeat_the_question():
    assert _problem_of("The capital of France is Paris.", TALK) == ""


def test_a_question_that_is_repeated_is_no_answer():
    assert _problem_of(TALK[0].content, TALK[:1]) == "the reply repeats the question"
    assert _problem_of("  \n", TALK) == "the reply is empty"
