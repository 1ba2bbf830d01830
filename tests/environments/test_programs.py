"""affine:abd and affine:ded: their data, their rules, and what must not score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import errors, seed_of
from headgate.environments import SANDBOX, environment
from headgate_environments.affine import codeio, curate
from headgate_environments.affine.abd import Abduction
from headgate_environments.affine.abd import judged as judged_input
from headgate_environments.affine.codeio import FOOTER, Case, Problem, digest_of, draw, problem_at, problem_count
from headgate_environments.affine.ded import Deduction, _make, same_output
from headgate_environments.affine.ded import judged as judged_program

DOUBLE = Problem(0, "Double it.", "", "def main_solution(n):\n    return {'twice': 2 * n}", "")
ABDUCTION = Abduction(DOUBLE, Case('{"n": 4}', '{"twice": 8}'))
DEDUCTION = Deduction(
    DOUBLE, (Case('{"n": 1}', '{"twice": 2}'),), (Case('{"n": 4}', '{"twice": 8}'), Case('{"n": 5}', '{"twice": 10}'))
)
GOOD = f"```python\n{DOUBLE.program}```"


@pytest.mark.parametrize(
    "reply",
    [
        '<INPUT>{"n": 4}</INPUT>',
        '<INPUT>\r\n  {"n":\r\n  4}   \r\n</INPUT>',
        '<think><INPUT>{"n": 1}</INPUT></think> so <input>{"n": 4}</input>',
        '<INPUT>{"n": 1}</INPUT> no, <INPUT>{"n": 4}</INPUT>',
        '<thinking>hm</thinking><INPUT>{"n": 4}</INPUT> done',
    ],
)
async def test_an_input_that_gives_the_output_scores_1(reply):
    assert (await judged_input(ABDUCTION, reply)).value == 1.0


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "<INPUT></INPUT>",
        "<INPUT>  \n </INPUT>",
        '{"n": 4}',
        '<INPUT>{"n": 5}</INPUT>',
        '<INPUT>{"n": 4}</INPUT> or <INPUT>{"n": 5}</INPUT>',
        '<think><INPUT>{"n": 4}</INPUT></think>',
        '<INPUT>```json\n{"n": 4}\n```</INPUT>',
        '<INPUT><b>{"n": 4}</b></INPUT>',
        '<INPUT>{"n": 4, "m": 1}</INPUT>',
        '<INPUT>{"twice": 8}</INPUT>',
        "<INPUT>4</INPUT>",
        "<INPUT>" + "9" * 1_000_000 + "</INPUT>",
        "<INPUT>\ufffd\x00</INPUT>",
        '<INPUT>{"n": NaN}</INPUT>',
        "<INPUT>__import__('sys').stdout.write('8')</INPUT>",
    ],
    ids=lambda reply: reply[:30],
)
async def test_any_other_input_scores_0(reply):
    score = await judged_input(ABDUCTION, reply)
    assert (score.value, score.success) == (0.0, False)
    assert score.why


async def test_an_input_that_makes_the_program_complain_scores_0():
    noisy = Problem(0, "", "", "import sys\ndef main_solution(n):\n    print('oh', file=sys.stderr)\n    return n", "")
    score = await judged_input(Abduction(noisy, Case('{"n": 4}', "4")), '<INPUT>{"n": 4}</INPUT>')
    assert score.value == 0.0


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"```python\nraise SystemExit(1)\n```\nBetter:\n{GOOD}\nThat is it.",
        "```python\nimport json\nprint(json.dumps(dict(twice=json.loads(input())['n'] * 2.0)))\nexit()\n```",
        f"<think>```python\nprint(0)\n```</think>{GOOD}",
    ],
)
async def test_a_program_that_passes_every_hidden_case_scores_1(reply):
    assert (await judged_program(DEDUCTION, reply)).value == 1.0


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "```python\n```",
        DOUBLE.program,
        f"```\n{DOUBLE.program}```",
        f"<think>{GOOD}</think>",
        "```python\nprint('{\"twice\": 8}')\n```",
        f"{GOOD}\n```python\nprint(1)\n```",
        "```python\nimport sys\nsys.stderr.write('x')\n" + DOUBLE.program + "```",
        "```python\nprint('here: ', end='')\n" + DOUBLE.program + "```",
        "```python\n" + DOUBLE.program + "\n    exit(1)\n```",
        "```python\n" + "x = 1\n" * 50_000 + "```",
        "```python\n\ufffd\x00\n```",
        "```python\n(" + "(" * 10_000 + "\n```",
    ],
    ids=lambda reply: repr(reply[:30]),
)
async def test_any_other_program_scores_0(reply):
    score = await judged_program(DEDUCTION, reply)
    assert (score.value, score.success) == (0.0, False)
    assert score.why


async def test_the_first_failing_case_ends_the_judgement(monkeypatch):
    ran = []
    real = SANDBOX.run

    async def counted(program, stdin):
        ran.append(stdin)
        return await real(program, stdin)

    monkeypatch.setattr(SANDBOX, "run", counted)
    score = await judged_program(DEDUCTION, "```python\nprint(1)\n```")
    assert len(ran) == 1
    assert score.why == "hidden case 1 of 2: another output"


@pytest.mark.parametrize("name", ["affine:abd", "affine:ded"])
async def test_the_prompt_said_back_scores_0(name):
    for index in range(3):
        episode = await environment(name).open(index, seed_of(name, index))
        assert (await episode.answer(episode.opening[0].content)).value == 0.0


async def test_no_hidden_case_is_shown_and_no_constant_passes():
    for index in range(0, 200, 20):
        task = await _make(index, seed_of("affine:ded", index))
        assert len({case.stdout for case in task.hidden}) >= 2
        assert not {case.stdout for case in task.hidden} & {case.stdout for case in task.examples}
        assert all(case.stdin not in task.prompt for case in task.hidden)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ('{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}'),
        ("0.30000000000000004", "0.3"),
        ("1 \n", "1"),
        ("not json", "not json"),
    ],
)
def test_outputs_that_are_the_same(printed, expected):
    assert same_output(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1", "true"),
        ("0.31", "0.3"),
        ("[1, 2]", "[2, 1]"),
        ('{"a": 1}', '{"a": 1, "b": 2}'),
        ('"1"', "1"),
        ("null", "0"),
        ("", "0"),
        ("[" * 100_000, "[1]"),
        ("1" + "0" * 400, "1.5"),
        ("Infinity", "1e308"),
    ],
    ids=lambda text: text[:10],
)
def test_outputs_that_are_not_the_same(printed, expected):
    assert not same_output(printed, expected)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_every_value_is_the_same_as_itself_however_it_is_written(value):
    assert same_output(json.dumps(value, indent=1), json.dumps(value))


def test_the_curated_rows_are_those_of_the_installed_data():
    assert problem_count() > 1_000
    assert len({problem_at(index).row for index in range(problem_count())}) == problem_count()
    assert problem_at(0) == problem_at(problem_count())


def test_data_of_another_version_is_noticed(monkeypatch):
    monkeypatch.setattr(codeio, "_listed_rows", lambda: ((0, "0" * 16),))
    codeio._problems.cache_clear()
    try:
        with pytest.raises(
            errors.EnvironmentFailedError, match=r"row 0 of the data in reasoning-gym .* is not the row"
        ):
            problem_at(0)
    finally:
        codeio._problems.cache_clear()


def test_the_digest_covers_all_that_shapes_a_task():
    parts = ["description", "interface", "code", "generator"]
    digests = {digest_of(Problem(0, *(part + "!" * (part == changed) for part in parts))) for changed in [*parts, ""]}
    assert len(digests) == 5


async def test_a_curated_row_still_gives_the_cases_that_it_was_curated_with():
    lines = [line for line in codeio.ROWS_FILE.read_text().splitlines() if not line.startswith("#")]
    for line in lines[:: len(lines) // 5]:
        row, _, cases = line.split()
        problem = next(problem_at(index) for index in range(problem_count()) if problem_at(index).row == int(row))
        assert curate.cases_digest(await curate.curation_cases(problem, SANDBOX)) == cases


async def test_the_program_prints_for_a_case_what_was_drawn():
    problem = problem_at(17)
    for case in await draw(problem, 1, 3):
        run = await SANDBOX.run(problem.program, case.stdin)
        assert (run.stdout, run.stderr) == (case.stdout + "\n", "")


async def test_a_generator_that_fails_is_the_environments_failure():
    broken = Problem(5, "", "", "def main_solution(n): return n", "def generate_inputs(rng): return 1 / 0")
    with pytest.raises(errors.EnvironmentFailedError, match=r"row 5 failed.*ZeroDivisionError"):
        await draw(broken, 1, 1)


GENERATOR = "def generate_inputs(rng):\n    return {'n': rng.randint(0, 10**6)}"


async def test_a_steady_program_is_usable():
    problem = Problem(3, "", "", "def main_solution(n):\n    return n + 1", GENERATOR)
    assert (await curate.usable_line(problem)).startswith(f"3 {digest_of(problem)} ")


@pytest.mark.parametrize(
    "code",
    [
        "import numpy\ndef main_solution(n): return n",
        "import os\ndef main_solution(n): return n",
        "import random\ndef main_solution(n): return random.random()",
        "from random import random as r\ndef main_solution(n): return r()",
        "import random as r\ndef main_solution(n): return r.random()",
        "def main_solution(n): return id(n)",
        "import datetime\ndef main_solution(n): return [n, datetime.date.today().isoformat()]",
        "def main_solution(n): return n % 2",
        "def main_solution(n): return list({str(n), str(n + 1), str(n + 2)})",
        "def main_solution(n): return object()",
        "def main_solution(n): return float('nan')",
        "def main_solution(n):\n    print(n)\n    return n",
        "count = 0\ndef main_solution(n):\n    global count\n    count += 1\n    return n + count",
        "def main_solution(n): return 'x' * 5000 + str(n)",
        "def main_solution(n)",
    ],
    ids=lambda code: code.rpartition("return ")[2][:30],
)
async def test_a_program_that_is_not_steady_or_harmless_is_left_out(code):
    assert await curate.usable_line(Problem(3, "", "", code, GENERATOR)) is None


def test_the_footer_is_all_that_a_program_adds():
    assert DOUBLE.program == DOUBLE.code + FOOTER
    assert Path(codeio.__file__).with_name("codeio_rows.txt") == codeio.ROWS_FILE
