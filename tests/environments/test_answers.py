"""Finding answers in replies of any shape, in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.environments.answers import (
    last_python_fence,
    last_tagged,
    named_actions,
    normalised_output,
    without_thinking,
)

plain = st.text(st.characters(exclude_characters="<>`"))
noisy = st.lists(st.sampled_from(["<INPUT>", "</INPUT>", "<think>", "</think>", "```", "```python\n", "x", "\n"])).map(
    "".join
)


def test_thinking_is_left_out():
    assert without_thinking("a<think>b</think>c<thinking>d\ne</thinking>f") == "acf"


def test_thinking_that_never_ends_stays():
    assert without_thinking("a<think>b") == "a<think>b"


@given(plain, plain, plain)
def test_only_what_stands_outside_of_thinking_is_kept(before, thought, after):
    assert without_thinking(f"{before}<think>{thought}</think>{after}") == before + after


@given(noisy, plain)
def test_the_last_tag_is_read_whatever_stands_before(noise, answer):
    assert last_tagged(f"{noise}<INPUT>{answer}</INPUT>", "INPUT") == answer


@given(noisy, plain)
def test_the_last_python_block_is_read_whatever_stands_before(noise, program):
    assert last_python_fence(f"{noise}\n```python\n{program}\n```") == f"\n{program}\n"


@given(noisy)
def test_reading_never_fails(reply):
    without_thinking(reply)
    last_tagged(reply, "INPUT")
    last_python_fence(reply)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("<INPUT>1</INPUT> or <input>2</input>", "2"),
        ("<INPUT>1</INPUT> or <INPUT>2", "1"),
        ("<INPUT>1<INPUT>2</INPUT>", "2"),
        ("1</INPUT>", None),
        ("", None),
        ("İ<INPUT>1</INPUT>", "1"),  # lower case of this letter is longer than the letter
    ],
)
def test_tags(reply, found):
    assert last_tagged(reply, "INPUT") == found


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("```python\na\n```\n```python\nb\n```", "\nb\n"),
        ("```python\na\n```\n```\nb\n```", "\na\n"),
        ("```bash\nls\n```", None),
        ("```python\na", None),
        ("```Python\na\n```", "\na\n"),
        ("``` py\na\n```", "\na\n"),
        ("print(1)", None),
    ],
)
def test_fences(reply, found):
    assert last_python_fence(reply) == found


@pytest.mark.parametrize("piece", ["<think>", "</think>", "<INPUT>", "</INPUT>", "```python ", "``` ", "<thinking>"])
def test_a_megabyte_of_openings_is_read_at_once(piece):
    reply = piece * (1_000_000 // len(piece))
    last_tagged(without_thinking(reply), "INPUT")
    last_python_fence(reply)


def test_outputs_are_compared_without_blanks_at_their_ends():
    assert normalised_output("  a  \r\nb\t\n\n") == normalised_output("a\nb")
    assert normalised_output("a b") != normalised_output("ab")
    assert normalised_output("a\nb") != normalised_output("a\n\nb")


line_ends = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
of_actions = st.lists(
    st.sampled_from(
        [
            "action",
            "Action:",
            "ACT\u0130ON",
            "act\u0131on",
            "**Action**: ",
            ":",
            " ",
            "-",
            "go",
            "7",
            "\u0130",
            "_",
            "\u00e9",
            *line_ends,
        ]
    )
    | st.text(max_size=3)
).map("".join)


def actions_line_by_line(reply):
    """The definition: each line is looked at."""
    lines = reply.splitlines()
    for number, line in enumerate(lines):
        found = re.match(r"\W*action\W*:(.*)", line, re.IGNORECASE | re.DOTALL)
        if found:
            following = next(filter(str.strip, lines[number + 1 : number + 3]), "")
            yield found[1] if re.search(r"[A-Za-z0-9]", found[1]) else following


@given(of_actions)
def test_actions_are_those_of_a_look_at_each_line(reply):
    assert list(named_actions(reply)) == list(actions_line_by_line(reply))


def test_lines_end_where_python_ends_them_and_nowhere_else():
    every = [chr(code) for code in range(0x110000)]
    assert {sign for sign in every if len(f"a{sign}b".splitlines()) == 2} | {"\r\n"} == set(line_ends)


def test_no_letter_but_two_is_taken_for_one_of_the_word():
    every = [chr(code) for code in range(128, 0x110000)]
    word = re.compile("[action]", re.IGNORECASE)
    assert [sign for sign in every if word.match(sign)] == ["\u0130", "\u0131"]
    assert [sign for sign in every if len(sign.lower()) > 1] == ["\u0130"]
