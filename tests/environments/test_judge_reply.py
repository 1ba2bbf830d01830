"""A judge's verdict is found in whatever a model wraps around it, and never guessed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.environments import Judgement
from headgate.environments.judge_questions import mean_verdict, read_judgement


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"score": 0.7, "reason": "fine"}', 0.7),
        ('Here it is:\n```json\n{"score": "7/10", "reason": "most of it"}\n```', 0.7),
        ('{"Score": 1}', 1.0),
        ('{"score": 0.5, "points": {"a": 1}}', 0.5),
        ('First {"score": 0.2}, on reflection {"score": 0.9, "reason": "better"}', 0.9),
        ('<think>perhaps {"score": 0.1}</think>{"score": 0.8}', 0.8),
        ("**Score:** 0.8", 0.8),
        ("Grade: 70 %", 0.7),
        ("The rating is 7/10.", 0.7),
        ("Score: 1 out of 5", 0.2),
        ("Score: 0.4. As I said, the score is 0.4", 0.4),
        ("0.25", 0.25),
        ("40%", 0.4),
    ],
)
def test_a_verdict_is_read_in_many_forms(reply: str, value: float) -> None:
    judgement = read_judgement(reply)
    assert judgement is not None
    assert judgement.value == pytest.approx(value)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "The answer is very good.",
        "7",
        '{"score": 7}',
        '{"score": true}',
        '{"score": null}',
        '{"score": NaN}',
        '{"score": -0.1}',
        "Score: -0.5",
        "Score: 1.5",
        "Score: 8 out of 5",
        "Score: 0.2, or rather a score: 0.9",
        "score: 0.2-0.4",
        "score: 1/1000",
        '<think>{"score": 0.9}</think>',
        "It scored 3 points in 1999.",
    ],
)
def test_what_is_no_verdict_is_not_read(reply: str) -> None:
    assert read_judgement(reply) is None


def test_the_reason_becomes_one_line_of_bounded_length() -> None:
    judgement = read_judgement(json.dumps({"score": 1, "reason": "two\nlines " + "x" * 1_000}))
    assert judgement is not None
    assert judgement.why.startswith("two lines x")
    assert len(judgement.why) == 300


@given(st.text())
def test_any_reply_gives_a_value_from_0_to_1_or_nothing(reply: str) -> None:
    judgement = read_judgement(reply)
    assert judgement is None or 0.0 <= judgement.value <= 1.0


@given(st.floats(0, 1), st.text(st.characters(exclude_characters="{}", exclude_categories=("Cs",))))
def test_a_verdict_in_json_is_read_whatever_stands_before_it(value: float, before: str) -> None:
    judgement = read_judgement(before.replace("<", "") + json.dumps({"score": value}))
    assert judgement == Judgement(value, "")


@pytest.mark.parametrize("part", ["{", '{"score":', "score: ", "1", " ", '"', "a{b}"])
def test_a_reply_of_megabytes_is_looked_at_and_is_no_verdict(part: str) -> None:
    assert read_judgement(part * 500_000) is None


def test_judgements_make_their_mean_with_the_reason_of_the_one_next_to_it() -> None:
    score = mean_verdict([Judgement(0.2, "low"), Judgement(0.7, "middle"), Judgement(0.9, "high")], pass_mark=0.6)
    assert (score.value, score.success, score.why) == (0.6, True, "middle")
    assert not mean_verdict([Judgement(0.5, "")], pass_mark=0.6).success


@pytest.mark.parametrize(
    "reply", ['{"score": ' + "9" * 400 + "}", '{"score": ' + "[" * 2_000 + "}", '{"score": -' + "9" * 400 + "}"]
)
def test_numbers_and_nesting_without_end_are_no_verdict(reply: str) -> None:
    assert read_judgement(reply) is None
