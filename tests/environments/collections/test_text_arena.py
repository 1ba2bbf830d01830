"""textarena: games for one and for two, the same for an index whoever plays beside, scored by their rewards."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys

import pytest

from headgate.core import errors
from headgate.environments import Continue, Score
from headgate.environments.measurement import baseline_episode
from headgate.environments.protocol import Collection
from headgate_environments.collections.text_arena import GAMES, MAX_ROUNDS, text_arena

COLLECTION = text_arena()
GOLDEN = {
    "ConnectFour-v0": "c46916e9372c35f0",
    "FrozenLake-v0": "80a37d4f7bcc0455",
    "KuhnPoker-v0": "f1842cb3d40c2ad4",
    "LightsOut-v0": "7efd0cc8353238df",
    "Nim-v0": "b261376085923fb5",
    "TicTacToe-v0": "103405afcc6c51f3",
}

DIGEST_PROGRAM = """
import asyncio, hashlib, sys
from headgate_environments.collections.text_arena import text_arena
for name in sys.argv[1:]:
    opened = [asyncio.run(text_arena().environment(f"textarena:{name}").open(index, 0)) for index in (3, 0)]
    said = [episode.opening[0].content for episode in opened]
    print("\\ndigest", name, hashlib.sha256(repr(said).encode()).hexdigest())
"""


def told_by_another_process():
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DIGEST_PROGRAM, *GOLDEN],
        env=os.environ | {"PYTHONHASHSEED": "12"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def of(member):
    return COLLECTION.environment(f"textarena:{member}")


async def begun(member, index=0):
    return await of(member).open(index, 0)


async def played(member, *moves, index=0):
    episode = await begun(member, index)
    for move in moves:
        answer = await episode.answer(move)
    return answer


def test_it_is_a_collection_of_the_games_on_the_list():
    assert isinstance(COLLECTION, Collection)
    names = COLLECTION.names()
    assert list(names) == sorted(f"textarena:{member}" for member in GAMES)
    assert all(f"textarena's {member} for" in of(member).spec.summary for member in GAMES)


def test_who_the_other_player_is_is_said():
    assert of("TicTacToe-v0").spec.summary.endswith("the other player draws from the legal moves")


@pytest.mark.parametrize(
    "member", sorted(set(GAMES) - {"Sokoban-v0", "Sudoku-v0-hard", "Sudoku-v0-medium", "Sudoku-v0"})
)
async def test_every_game_begins_and_takes_a_legal_move(member):
    episode = await begun(member, 1)
    assert len(episode.opening[0].content) > 100
    reply = await of(member).baseline("random", 1, 0, episode.opening, random.Random(1))
    assert reply != "[]"
    answer = await episode.answer(reply)
    assert isinstance(answer, Continue) or "illegal" not in answer.why
    assert not episode.play.was_illegal(episode.player)


@pytest.mark.parametrize(("member", "digest"), GOLDEN.items(), ids=GOLDEN)
async def test_an_index_is_the_same_game_in_every_version(member, digest):
    said = [(await begun(member, index)).opening[0].content for index in (0, 1, 9_999)]
    assert hashlib.sha256("\0".join(said).encode()).hexdigest()[:16] == digest


async def test_games_do_not_depend_on_how_strings_are_hashed():
    told = await asyncio.to_thread(told_by_another_process)
    lines = [line.split()[1:] for line in told.splitlines() if line.startswith("digest ")]
    assert [member for member, _ in lines] == list(GOLDEN)
    for member, digest in lines:
        said = [(await begun(member, index)).opening[0].content for index in (3, 0)]
        assert hashlib.sha256(repr(said).encode()).hexdigest() == digest


async def test_games_beside_each_other_and_other_draws_do_not_mix():
    moves = ["[roll]"] * 4
    alone = await begun("PigDice-v0", 5)
    expected = [await alone.answer(move) for move in moves]
    one, other = await begun("PigDice-v0", 5), await begun("PigDice-v0", 6)
    mixed = []
    for move in moves:
        random.seed(0)
        mixed.append(await one.answer(move))
        await other.answer(move)
    assert mixed == expected


async def test_the_global_dice_are_left_as_they_were():
    random.seed(99)
    state = random.getstate()
    await begun("KuhnPoker-v0", 3)
    assert random.getstate() == state


async def test_the_model_begins_on_even_indices_and_answers_on_odd_ones():
    assert "You are Player 0" in (await begun("TicTacToe-v0", 0)).opening[0].content
    text = (await begun("TicTacToe-v0", 1)).opening[0].content
    assert "You are Player 1" in text
    assert "Player 0 placed their symbol" in text


async def test_a_won_game_scores_1():
    wins = [await baseline_episode(of("TicTacToe-v0"), "greedy", index) for index in range(6)]
    assert max(result.score for result in wins) == 1.0
    assert {result.score for result in wins} <= {0.0, 0.5, 1.0}


async def test_illegal_moves_lose_as_the_rules_say():
    first = await played("TicTacToe-v0", "[9]")
    assert isinstance(first, Continue)
    assert "invalid move" in first.messages[0].content
    lost = await played("TicTacToe-v0", "[9]", "[9]")
    assert lost == Score(0.0, success=False, why="an illegal move ended the game: rounds=2")


TRICKS = {
    "nothing": "",
    "a claim": "I win. {'rewards': {0: 1}}",
    "a system's voice": "[GAME] Player 0 has won!",
    "markup": "</INPUT>```<think>Action: x\x1b[1m<b>",
    "json": '{"reward": 1}',
    "a megabyte": "[" * 1_000_000,
    "another script": "[٤]",
}


@pytest.mark.parametrize(
    "member", ["TicTacToe-v0", "GuessTheNumber-v0", "LightsOut-v0", "FrozenLake-v0", "Sudoku-v0-easy"]
)
@pytest.mark.parametrize("reply", TRICKS.values(), ids=TRICKS)
async def test_tricks_score_0(member, reply):
    episode = await begun(member)
    for _ in range(MAX_ROUNDS):
        answer = await episode.answer(reply)
        if isinstance(answer, Score):
            break
    assert answer.value == 0.0


async def test_the_last_of_several_moves_counts_and_thoughts_do_not():
    expected = await played("TicTacToe-v0", "[4]")
    assert await played("TicTacToe-v0", "not [0], but [4]") == expected
    assert await played("TicTacToe-v0", "[4]<think>or [0]?</think>") == expected


async def test_greedy_plays_better_than_chance():
    means = {}
    for kind in ("random", "greedy"):
        results = [await baseline_episode(of("TicTacToe-v0"), kind, index) for index in range(8)]
        means[kind] = sum(result.score for result in results) / 8
    assert means["greedy"] > means["random"]


def test_an_unknown_game_is_refused_with_the_nearest():
    with pytest.raises(errors.UnknownEnvironmentError, match="did you mean 'textarena:TicTacToe-v0'"):
        of("TikTakToe-v0")


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(errors.MissingExtraError, match="extra 'textarena'"):
        of("TicTacToe-v0")
