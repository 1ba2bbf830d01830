"""textworld-express:*: equal indices are equal games, solutions solve them, tricks earn nothing."""

from __future__ import annotations

import hashlib
import random

import pytest

from headgate.core import errors
from headgate.environments import Score
from headgate.environments.java import java_runtime
from headgate.environments.measurement import baseline_episode
from headgate.environments.protocol import Collection
from headgate_environments.collections.textworld_express import RULES, textworld_express

pytest.importorskip("textworld_express", reason="the extra textworld-express is not installed")
try:
    java_runtime()
except errors.EnvironmentFailedError as missing:
    pytest.skip(str(missing), allow_module_level=True)

GOLDEN = [
    ("textworld-express:arithmetic", 999, "0cccb79e1643099d"),
    ("textworld-express:coin", 999, "1e5adce74d091c32"),
    ("textworld-express:cookingworld", 999, "87799d2d27d5e398"),
    ("textworld-express:mapreader", 999, "deb2b4964266d6c6"),
    ("textworld-express:peckingorder", 999, "df0bf028d59a1f18"),
    ("textworld-express:simonsays", 999, "c30c9d0f2c884be8"),
    ("textworld-express:sorting", 999, "f101af5bace9a636"),
    ("textworld-express:twc", 999, "6474c44278d06e8e"),
]


@pytest.fixture(scope="module")
def games():
    return textworld_express()


def test_it_is_a_collection_of_eight_games(games):
    assert isinstance(games, Collection)
    assert games.names() == tuple(f"textworld-express:{game}" for game in sorted(RULES))
    with pytest.raises(errors.UnknownEnvironmentError, match="did you mean 'textworld-express:coin'"):
        games.environment("textworld-express:coins")


@pytest.mark.parametrize(("name", "index", "digest"), GOLDEN)
async def test_the_question_of_a_task_is_what_it_was(games, name, index, digest):
    episode = await games.environment(name).open(index, 0)
    await episode.close()
    assert hashlib.sha256(episode.opening[0].content.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("game", sorted(RULES))
async def test_the_solution_scores_1(games, game):
    result = await baseline_episode(games.environment(f"textworld-express:{game}"), "solver", 0)
    assert (result.score, result.error) == (1.0, None)


@pytest.mark.parametrize(
    "reply", ["", "Action: win", "Action: take coin\nAction: take coin", "\x1b[31m<score>1</score>"]
)
async def test_tricks_score_0(games, reply):
    environment = games.environment("textworld-express:coin")
    episode = await environment.open(0, 0)
    for _ in range(environment.spec.max_rounds):
        answer = await episode.answer(reply)
    await episode.close()
    assert answer.value == 0.0


ODD = (
    *(
        "",
        "0",
        "-1",
        "take",
        "move",
        "open door to",
        "put in box",
        "task task",
        "inventory box",
        "{}",
        '["look around"]',
    ),
    *(
        "\N{SNOWMAN}",
        "\x00\x1b[31m",
        "'",
        "look around " * 50,
        "x" * 5_000,
        "None",
        "take coin from nowhere",
        "answer 5",
    ),
)


@pytest.mark.parametrize("game", sorted(RULES))
async def test_odd_actions_are_answered_in_words_and_void_no_sample(games, game):
    environment = games.environment(f"textworld-express:{game}")
    episode = await environment.open(1, 0)
    rng = random.Random(game)
    replies = [f"Action: {odd}{tail}" for odd in ODD for tail in ("", " map", "`")]
    for reply in rng.sample(replies, environment.spec.max_rounds):
        answer = await episode.answer(reply)
        assert isinstance(answer, Score) or "Available actions: [" in answer.messages[0].content
    await episode.close()
    assert isinstance(answer, Score)


async def test_an_action_at_which_the_game_raises_does_nothing(games):
    episode = await games.environment("textworld-express:coin").open(0, 0)
    game = await episode._game.call(lambda game: game)
    before = game.step("look around")
    # No text is known at which the game raises; it does at none at all.
    after = game.step(None)
    await episode.close()
    assert after.said == "That cannot be done; nothing came of it."
    assert (after.available, after.score, after.is_over) == (before.available, before.score, before.is_over)
    assert not game.can_be_lent


@pytest.mark.parametrize("game", ["mapreader", "twc"])
async def test_the_rule_of_thumb_earns_more_than_chance(games, game):
    environment = games.environment(f"textworld-express:{game}")
    earned = [(await baseline_episode(environment, "greedy", index)).score for index in range(5)]
    assert sum(earned) / 5 > environment.spec.chance_score
