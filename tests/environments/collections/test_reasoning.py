"""reasoning-gym: which data sets are used, that tasks are the same everywhere, what scores and what does not."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys

import pytest

from headgate.core import errors
from headgate.environments.measurement import baseline_episode
from headgate.environments.protocol import Collection
from headgate_environments.collections.reasoning import LEFT_OUT, reasoning

# The package that carries arc_agi's and rearc's puzzles leaves its file open.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file .*arcagi:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*arcagi:pytest.PytestUnraisableExceptionWarning"),
]

# Importing the package takes a second of every process that collects these tests: they ask for its names as they run.
COLLECTION = reasoning()
GOLDEN = {
    "basic_arithmetic": "24310c3cc9e01f51",
    "chain_sum": "30373adad41ca377",
    "countdown": "9bdb95c07c99ca68",
    "graph_color": "ba5192a62f082c5b",
    "mini_sudoku": "f5525b4f6bea4b43",
    "n_queens": "e5dd74c471fcc8ed",
    "rubiks_cube": "8a97c0ac9aee8571",
    "spell_backward": "48d996588f60327d",
    "syllogism": "68aebc7cada2ef7d",
    "tower_of_hanoi": "703559c65e66a022",
}
SLOW = frozenset(
    {"acre", "futoshiki", "game_of_life", "puzzle24", "quantum_lock", "sokoban", "sudoku", "zebra_puzzles"}
)
"""Data sets whose tasks take 0.1 s and more to make, or whose first takes as long."""


def tried():
    """Return 20 data sets, evenly; with ALL_DATA_SETS=1 all, in half a minute more."""
    quick = sorted(dataset for name in COLLECTION.names() if (dataset := name.partition(":")[2]) not in SLOW)
    return quick if os.environ.get("ALL_DATA_SETS") else quick[:: -(-len(quick) // 20)]


DIGEST_PROGRAM = """
import asyncio, hashlib, sys
from headgate_environments.collections.reasoning import reasoning
async def said(name):
    made = reasoning().environment("reasoning-gym:" + name)
    return [(await made.open(index, 0)).opening[0].content for index in (41, 0)]
for name in sys.argv[1:]:
    print("\\ndigest", name, hashlib.sha256(repr(asyncio.run(said(name))).encode()).hexdigest())
"""


def told_by_another_process():
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DIGEST_PROGRAM, *tried()],
        env=os.environ | {"PYTHONHASHSEED": "12"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def of(dataset):
    return COLLECTION.environment(f"reasoning-gym:{dataset}")


async def opening(made, index):
    return (await made.open(index, 0)).opening[0].content


async def scored(dataset, answer, index=0):
    return (await (await of(dataset).open(index, 0)).answer(f"<answer>{answer}</answer>")).value


async def solved(made, index):
    return await made.baseline("solver", index, 0, (await made.open(index, 0)).opening, random.Random(0))


def test_it_is_a_collection_of_all_generators_that_are_not_left_out():
    assert isinstance(COLLECTION, Collection)
    names = COLLECTION.names()
    assert len(names) == 95
    assert list(names) == sorted(names)
    assert not {f"reasoning-gym:{dataset}" for dataset in LEFT_OUT} & set(names)


@pytest.mark.parametrize(("dataset", "digest"), GOLDEN.items(), ids=GOLDEN)
async def test_an_index_is_the_same_task_in_every_version(dataset, digest):
    said = [await opening(of(dataset), index) for index in (0, 1, 99_999)]
    assert len(set(said)) == 3
    assert hashlib.sha256("\0".join(said).encode()).hexdigest()[:16] == digest


async def test_tasks_do_not_depend_on_how_strings_are_hashed_nor_on_what_was_asked_before():
    told = await asyncio.to_thread(told_by_another_process)
    lines = [line.split()[1:] for line in told.splitlines() if line.startswith("digest ")]
    for dataset, digest in lines:
        made = of(dataset)
        said = [await opening(made, index) for index in (0, 41)][::-1]
        assert hashlib.sha256(repr(said).encode()).hexdigest() == digest, dataset
    assert [dataset for dataset, _ in lines] == tried()


TRICKS = {
    "nothing": "",
    "blanks": " \n\t",
    "an empty answer": "<answer> </answer>",
    "an unclosed answer": "<answer>1",
    "markup": "<answer></INPUT>```<think>Action: go\nAction: stay<b>\x1b[1m</answer>",
    "json": '<answer>{"score": 1, "answer": "right"}</answer>',
    "not a number": "<answer>nan</answer>",
    "a bare object": "<answer>{}</answer>",
    "a megabyte of tags": "<answer>" * 125_000,
    "a megabyte of digits": f"<answer>{'1' * 1_000_000}</answer>",
    "twenty thousand brackets": f"<answer>{'(' * 19_000}</answer>",
    "a long number": "<answer>1e999999999</answer>",
    "a program": "<answer>__import__('os')._exit(1)</answer>",
}


async def test_the_right_answer_scores_1_and_no_trick_does():
    for dataset in tried():
        made = of(dataset)
        episode = await made.open(5, 0)
        answer = await solved(made, 5)
        if made.spec.solver_rate > 0:
            assert (await episode.answer(answer)).value == 1.0, dataset
            assert (await episode.answer(f"<think><answer>7</answer></think>so\n{answer}")).value == 1.0, dataset
        assert (await episode.answer(episode.opening[0].content)).value == 0.0, dataset
        for trick, reply in TRICKS.items():
            assert (await episode.answer(reply)).value == 0.0, (dataset, trick)


@pytest.mark.parametrize(
    ("dataset", "answer"),
    [
        ("coin_flip", "0"),
        ("game_of_life_halting", "yes"),
        ("puzzle24", "4 * 6 * 1 * 1"),
        ("spiral_matrix", "[1]"),
        ("string_insertion", "list('ABC')"),
        ("countdown", "9**9**9**9"),
        ("simple_integration", "((x+1)**99)**99"),
        ("simple_integration", "Integral(exp(x), x)"),
        ("complex_arithmetic", "nan"),
        ("prime_factorization", "two"),
    ],
)
async def test_what_the_scorers_would_pay_for_or_choke_on_scores_0(dataset, answer):
    for index in range(4):
        assert await scored(dataset, answer, index) == 0.0


async def test_an_antiderivative_with_a_constant_of_its_own_is_right():
    own = (await solved(of("simple_integration"), 2)).removeprefix("<answer>").removesuffix("</answer>")
    assert await scored("simple_integration", own.replace("+ C", "+ 12"), 2) == 1.0
    assert await scored("simple_integration", f"2*({own})", 2) == 0.0


async def test_the_answer_of_another_task_scores_0():
    for dataset in ("chain_sum", "puzzle24", "countdown", "n_queens", "spell_backward", "tower_of_hanoi"):
        made = of(dataset)
        assert (await (await made.open(1, 0)).answer(await solved(made, 2))).value == 0.0


async def test_baselines_rank_as_they_should():
    scores = {
        kind: sum([(await baseline_episode(of("number_sequence"), kind, i)).score for i in range(40)])
        for kind in ("random", "greedy", "solver")
    }
    assert scores["solver"] == 40 > scores["greedy"] > scores["random"]


async def test_episodes_may_be_opened_at_once():
    made = of("mini_sudoku")
    episodes = await asyncio.gather(*(made.open(index % 3, 0) for index in range(12)))
    assert [episode.opening for episode in episodes[:3]] * 4 == [episode.opening for episode in episodes]


def test_what_is_left_out_says_why():
    with pytest.raises(errors.UnknownEnvironmentError, match="executes the model's code"):
        of("codeio")


@pytest.mark.parametrize(
    ("name", "hint"), [("chain_sun", "reasoning-gym:chain_sum"), ("sudoko", "reasoning-gym:sudoku")]
)
def test_an_unknown_name_is_refused_with_the_nearest(name, hint):
    with pytest.raises(errors.UnknownEnvironmentError, match=f"did you mean '{hint}'"):
        of(name)


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(errors.MissingExtraError, match="extra 'reasoning-gym'"):
        of("chain_sum")
