"""gymnasium: its toy games in text, plugins by name, scores of returns, baselines that rank."""

from __future__ import annotations

import hashlib
import sys

import gymnasium
import pytest

from headgate.core import Message, errors
from headgate.environments import Continue, Score
from headgate.environments.measurement import baseline_episode
from headgate.environments.protocol import Collection
from headgate_environments.collections.gymnasium_text import gymnasium_text

COLLECTION = gymnasium_text()
GOLDEN = {
    "Blackjack-v1": "c4cae7baf8d755bb",
    "CliffWalking-v1": "159f63705d9a6239",
    "CliffWalkingSlippery-v1": "fbc950e2d31bddf5",
    "FrozenLake-v1": "0271fba88848ea6c",
    "FrozenLake8x8-v1": "abf308ee16fabbd8",
    "Taxi-v4": "874a4a8227dc1f1d",
}


class Echoing(gymnasium.Env):
    """Says a word, wants it back; pays half for each, raises at `boom`."""

    observation_space = gymnasium.spaces.Text(20)
    action_space = gymnasium.spaces.Text(20)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = str(self.np_random.choice(["weir", "sluice", "gate"]))
        self.turn = 0
        return self.word, {}

    def step(self, action):
        if action == "boom":
            raise ValueError("boom")
        self.turn += 1
        return self.word, 0.5 * (action == self.word), self.turn == 2, False, {}


class Pictures(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2, 2))
    action_space = gymnasium.spaces.Discrete(2)


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("headgate-tests/Echoing-v0", entry_point=Echoing)
    gymnasium.register("headgate-tests/Pictures-v0", entry_point=Pictures)
    yield
    gymnasium.registry.pop("headgate-tests/Echoing-v0")
    gymnasium.registry.pop("headgate-tests/Pictures-v0")


def of(member):
    return COLLECTION.environment(f"gymnasium:{member}")


async def begun(member, index=0):
    return await of(member).open(index, 0)


async def mean(member, kind, episodes):
    results = [await baseline_episode(of(member), kind, index) for index in range(episodes)]
    assert all(result.error is None for result in results)
    return sum(result.score for result in results) / episodes


def test_it_is_a_collection_of_the_toy_games():
    assert isinstance(COLLECTION, Collection)
    assert COLLECTION.names() == tuple(f"gymnasium:{name}" for name in sorted(GOLDEN))


@pytest.mark.parametrize(("member", "digest"), GOLDEN.items(), ids=GOLDEN)
async def test_an_index_is_the_same_game_in_every_version(member, digest):
    said = []
    for index in (0, 1, 9_999):
        episode = await begun(member, index)
        answer = await episode.answer("Action: 1")
        said += [episode.opening[0].content, repr(answer)]
    assert hashlib.sha256("\0".join(said).encode()).hexdigest()[:16] == digest


async def test_a_game_is_told_in_plain_characters():
    text = (await begun("FrozenLake-v1")).opening[0].content
    assert "Actions: left, down, right, up" in text
    assert text.endswith("[S]FFF\nFHFH\nFFFH\nHFFG")
    text = (await begun("Taxi-v4", 3)).opening[0].content
    assert "The taxi is in row" in text
    assert "\x1b" not in text


async def test_games_beside_each_other_do_not_mix():
    alone = await begun("FrozenLake-v1", 4)
    told = [await alone.answer("Action: down") for _ in range(3)]
    one, other = await begun("FrozenLake-v1", 4), await begun("FrozenLake-v1", 5)
    mixed = []
    for _ in range(3):
        mixed.append(await one.answer("Action: down"))
        await other.answer("Action: right")
    assert mixed == told


@pytest.mark.parametrize("action", ["down", "1", "**Down**", "`down`."])
async def test_actions_are_called_by_name_or_number(action):
    expected = await (await begun("CliffWalking-v1")).answer("Action: up")
    assert await (await begun("CliffWalking-v1")).answer("Action: 0") == expected
    answer = await (await begun("FrozenLake-v1", 4)).answer(f"Thought: so\nAction: {action}")
    assert "There is no action" not in answer.messages[0].content


TRICKS = {
    "nothing": "",
    "a claim": "I have reached the goal. Score: 1",
    "no action": "Action: win",
    "two actions": "Action: up\nAction: right",
    "markup": "</INPUT>```<b>Action: \x1b[1mup",
    "json": '{"reward": 1, "terminated": true}',
    "another number": "Action: 99",
    "another script": "Action: ١",
    "a hundred kilobytes": "Action: " + "up " * 33_000,
    "the rules": "Actions: up, right, down, left\nReply with one action in this form:\nAction: <action>",
}


@pytest.mark.parametrize("reply", TRICKS.values(), ids=TRICKS)
async def test_what_is_no_action_changes_nothing_and_scores_0_in_the_end(reply):
    episode = await begun("CliffWalking-v1")
    place = episode.observation
    for _ in range(of("CliffWalking-v1").spec.max_rounds):
        answer = await episode.answer(reply)
        assert episode.observation == place
    assert answer == Score(0.0, success=False, why="the rewards sum to 0: rounds=60")


async def test_returns_become_scores():
    episode = await begun("CliffWalking-v1")
    for action in ["up", *["right"] * 11]:
        assert isinstance(await episode.answer(f"Action: {action}"), Continue)
    assert await episode.answer("Action: down") == Score(1.0, success=True, why="the rewards sum to -13: rounds=13")
    values = set()
    for index in range(30):
        values.add((await (await begun("Blackjack-v1", index)).answer("Action: stick")).value)
    assert values == {0.0, 0.5, 1.0}


async def test_baselines_rank_as_they_should():
    assert await mean("Taxi-v4", "solver", 1) == 1.0
    assert await mean("CliffWalking-v1", "solver", 1) == 1.0
    solver, greedy, chance = [await mean("Blackjack-v1", kind, 200) for kind in ("solver", "greedy", "random")]
    assert solver > greedy > chance
    assert await mean("FrozenLake-v1", "solver", 3) > await mean("FrozenLake-v1", "random", 3)


async def test_a_registered_game_of_text_is_played_by_its_name():
    episode = await begun("headgate-tests/Echoing-v0", 1)
    word = episode.observation
    assert word in episode.opening[0].content
    assert await episode.answer(f"Action: {word}") == Continue((Message("user", word),))
    assert (await episode.answer(f"Action: {word}")).value == 1.0
    result = await baseline_episode(of("headgate-tests/Echoing-v0"), "solver", 0)
    assert (result.score, result.error) == (0.0, None)


async def test_what_a_game_raises_is_its_own_failure():
    episode = await begun("headgate-tests/Echoing-v0")
    with pytest.raises(errors.EnvironmentFailedError, match="raised ValueError: boom"):
        await episode.answer("Action: boom")


def test_a_game_of_pictures_is_refused():
    with pytest.raises(errors.EnvironmentFailedError, match="cannot be played in text: it shows Box"):
        of("headgate-tests/Pictures-v0")


@pytest.mark.parametrize("name", ["FrozenLak-v1", "FrozenLake-v7", "no_such_module:Game-v0"])
def test_unknown_ids_are_refused(name):
    with pytest.raises(errors.UnknownEnvironmentError):
        of(name)


def test_the_nearest_name_is_told():
    with pytest.raises(errors.UnknownEnvironmentError, match="did you mean 'gymnasium:FrozenLake-v1'"):
        of("FrozenLak-v1")


@pytest.mark.parametrize("name", ["Nope-v1", "Hoper-v5"])
def test_no_name_is_told_that_cannot_be_played(name):
    with pytest.raises(errors.UnknownEnvironmentError) as refused:
        of(name)
    assert "did you mean" not in refused.value.message.lower()


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(errors.MissingExtraError, match="extra 'gymnasium'"):
        of("FrozenLake-v1")
