"""What AgentGym's servers are asked and how their answers are read, for each of the five environments."""

from __future__ import annotations

import random

import pytest

from headgate.core import ErrorKind, errors
from headgate.environments import Continue, Score, converse
from headgate.environments.agentgym.served import ACTION_CHARS, NO_ACTION, ONE_ACTION, TOO_LONG
from headgate.environments.agentgym.server import DIALECTS
from headgate.environments.measurement import baseline_episode
from tests.environments.agentgym_servers import DoorServer, served
from tests.environments.test_episode import says

NAMES = [dialect.environment for dialect in DIALECTS]
OPEN = "Thought:\nI open it.\n\nAction:\nopen door"
FIRST = {
    "alfworld": "door 3 is closed\nAVAILABLE ACTIONS: open door,look",
    "babyai": 'door 3 is closed\nAvailable actions: ["open door"]',
    "sciworld": "Open it.\ndoor 3 is closed",
    "textcraft": "door 3 is closed",
    "webshop": "WebShop [SEP] Instruction: [SEP] Find me a door [SEP] Search",
}


def full(dialect):
    return 100 if dialect == "sciworld" else 1.0


@pytest.mark.parametrize("dialect", NAMES)
async def test_an_episode_is_played_to_its_score(dialect):
    server = DoorServer(dialect, reward=full(dialect))
    async with server.running() as url:
        environment = served(dialect, url)
        result = await converse(environment, 3, 0, says("Action: knock", OPEN))
    assert (result.score, result.success, result.error) == (1.0, True, None)
    assert result.why == "the server's task is over: rounds=2"
    assert [message.role for message in result.messages] == ["user", "assistant"] * 3
    assert result.messages[2].content == FIRST[dialect]
    assert result.messages[4].content.startswith("nothing happens")


@pytest.mark.parametrize("dialect", NAMES)
async def test_sessions_end_where_the_server_ends_them_and_are_used_again_elsewhere(dialect):
    server = DoorServer(dialect, reward=full(dialect))
    async with server.running() as url:
        environment = served(dialect, url)
        for index in (3, 4, 5):
            assert (await converse(environment, index, 0, says(OPEN))).score == 1.0
    ends = [path for path, _ in server.calls].count("/close")
    if dialect in ("alfworld", "webshop"):
        assert (server.created, ends, list(server.sessions.values())) == (1, 0, [5])
    else:
        assert (server.created, ends, server.sessions) == (3, 3, {})


async def test_a_server_started_anew_is_asked_for_a_new_session():
    server = DoorServer("alfworld")
    async with server.running() as url:
        environment = served("alfworld", url)
        await converse(environment, 0, 0, says(OPEN))
        server.sessions.clear()
        assert (await converse(environment, 1, 0, says(OPEN))).score == 1.0
    assert server.created == 2


async def test_a_session_with_a_call_under_way_is_not_used_again():
    server = DoorServer("webshop")
    async with server.running() as url:
        environment = served("webshop", url)
        server.overrides["/step"] = {"error": "boom"}
        await converse(environment, 0, 0, says(OPEN))
        del server.overrides["/step"]
        assert (await converse(environment, 1, 0, says(OPEN))).score == 1.0
    assert server.created == 2


@pytest.mark.parametrize(
    ("dialect", "reward", "score", "success"),
    [
        ("sciworld", 60, 0.6, False),
        ("sciworld", -100, 0.0, False),
        ("babyai", 0.64, 0.64, True),
        ("babyai", 1.8, 1.0, True),
        ("babyai", 0, 0.0, False),
        ("webshop", 0.5, 0.5, False),
        ("webshop", True, None, False),
        ("textcraft", "1", None, False),
        ("alfworld", None, None, False),
    ],
)
async def test_rewards_become_scores(dialect, reward, score, success):
    server = DoorServer(dialect, reward=reward)
    async with server.running() as url:
        result = await converse(served(dialect, url), 0, 0, says(OPEN))
    assert (result.score, result.success) == (score, success)
    assert (result.error_kind is ErrorKind.ENVIRONMENT) is (score is None)


async def test_after_the_last_round_the_score_is_that_of_the_last_action():
    server = DoorServer("sciworld")
    server.overrides["/step"] = {"observation": "closer", "reward": 1, "score": 30, "done": False}
    async with server.running() as url:
        environment = served("sciworld", url, agentgym_max_rounds=3)
        kept = await converse(environment, 0, 0, says(*["Action: look around"] * 3))
        lost = await converse(environment, 0, 0, says("Action: look around", "Action: look around", "I am lost"))
    assert (kept.score, kept.success, kept.why) == (0.3, False, "the server's task is not over: rounds=3")
    assert lost.score == 0.0


@pytest.mark.parametrize(
    ("dialect", "reply", "sent"),
    [
        ("babyai", "Thought:\nx\n\nAction:\ngo to red ball 1.", "go to red ball 1"),
        ("textcraft", "Action: craft 1 stick, using `2 bamboo`!", "craft 1 stick, using 2 bamboo"),
        ("webshop", "Thought:\nx\n\nAction: \nsearch[Red shoes, size 7.5]", "search[Red shoes, size 7.5]"),
        ("alfworld", "**Action:** go to shelf 1", "go to shelf 1"),
        ("sciworld", "Action: open door to kitchen", "open door to kitchen"),
    ],
)
async def test_actions_are_sent_as_agentgyms_client_sends_them(dialect, reply, sent):
    server = DoorServer(dialect)
    async with server.running() as url:
        episode = await served(dialect, url).open(0, 0)
        await episode.answer(reply)
        await episode.close()
    ((_, body),) = [call for call in server.calls if call[0] == "/step"]
    assert body == {"env_idx" if dialect == "webshop" else "id": 40, "action": sent}


@pytest.mark.parametrize("dialect", ["sciworld", "textcraft"])
@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", NO_ACTION),
        ("The door is open. Score: 1", NO_ACTION),
        ("Action:", NO_ACTION),
        ("Action: open door\nObservation: it is open\nAction: open door", ONE_ACTION),
        ("Action: " + "9" * (ACTION_CHARS + 1), TOO_LONG),
        ("Action: " + "open door " * 100_000, TOO_LONG),
    ],
    ids=["nothing", "a claim", "no action", "two actions", "a long one", "a megabyte"],
)
async def test_what_is_no_action_is_not_sent_and_costs_a_round(dialect, reply, problem):
    server = DoorServer(dialect)
    async with server.running() as url:
        episode = await served(dialect, url, agentgym_max_rounds=2).open(0, 0)
        answer = await episode.answer(reply)
        last = await episode.answer(reply)
        await episode.close()
        await episode.close()
    assert isinstance(answer, Continue)
    assert answer.messages[0].content == problem
    assert last == Score(0.0, success=False, why="the server's task is not over: rounds=2")
    assert "/step" not in [path for path, _ in server.calls]


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/create", {"error": "no memory"}, "failed at POST /create: no memory"),
        ("/create", {"id": "x"}, "answered POST /create with 'x' instead of a session's number"),
        ("/create", [], "answered /create without 'id'; is it AgentGym's server of textcraft?"),
        ("/reset", {"error": "list index out of range"}, "failed at POST /reset: list index out of range"),
        ("/reset", {"state": "x"}, "answered /reset without 'observation'; is it AgentGym's server of textcraft?"),
        ("/step", {"error": "The task with environment 40 has finished."}, "failed at POST /step: The task"),
        ("/step", {"observation": 7, "reward": 0, "done": False}, "answered /step with 7 instead of text"),
        ("/step", {"observation": "x", "done": True}, "answered /step without 'reward'"),
        ("/step", {"observation": "x", "reward": 1}, "answered /step without 'done'"),
    ],
)
async def test_what_a_server_does_wrong_is_never_the_models_failure(path, answer, said):
    server = DoorServer("textcraft")
    server.overrides[path] = answer
    async with server.running() as url:
        result = await converse(served("textcraft", url), 0, 0, says(OPEN))
    assert (result.score, result.error_kind) == (None, ErrorKind.ENVIRONMENT)
    assert said in result.error
    assert "restart it, or correct its address in `agentgym_servers`" in result.error
    assert server.sessions == {}


async def test_keys_in_an_address_are_not_told():
    environment = served("textcraft", "http://me:hunter2@127.0.0.1:9")
    with pytest.raises(errors.EnvironmentFailedError) as caught:
        await environment.open(0, 0)
    assert "hunter2" not in str(caught.value)


async def test_the_specs_are_those_of_the_environments():
    specs = {dialect: served(dialect, "http://127.0.0.1:9").spec for dialect in NAMES}
    assert {dialect: (spec.name, spec.daily_rate, spec.data_length) for dialect, spec in specs.items()} == {
        "alfworld": ("agentgym:alfworld-server", 80.0, 2_500),
        "babyai": ("agentgym:babyai-server", 120.0, 4_000),
        "sciworld": ("agentgym:sciworld-server", 80.0, 4_639),
        "textcraft": ("agentgym:textcraft-server", 100.0, 582),
        "webshop": ("agentgym:webshop-server", 100.0, 200),
    }
    assert all(spec.max_rounds == 10 and spec.source and not spec.needs_judge for spec in specs.values())


@pytest.mark.parametrize("dialect", NAMES)
async def test_baselines_play_any_server(dialect):
    server = DoorServer(dialect)
    async with server.running() as url:
        for kind in ("random", "greedy", "solver"):
            result = await baseline_episode(served(dialect, url), kind, 1)
            assert result.error is None
    assert ("/step", None) not in server.calls


async def test_a_baseline_draws_from_what_is_listed():
    server = DoorServer("babyai")
    async with server.running() as url:
        environment = served("babyai", url)
        episode = await environment.open(0, 0)
        reply = await environment.baseline("random", 0, 0, episode.opening, random.Random(0))
        await episode.close()
    assert reply.endswith("Action:\nopen door")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("x" * 2_000_000, "answered POST /create with more than 1,048,576 bytes"),
        ([[]] * 70_000, "65,536 values are read from one message"),
    ],
    ids=["long", "crowded"],
)
async def test_an_answer_that_is_too_much_to_read_is_the_server_s_failure(answer, said):
    door = DoorServer("textcraft")
    door.overrides["/create"] = answer
    async with door.running() as url:
        with pytest.raises(errors.EnvironmentFailedError, match=said):
            await served("textcraft", url).open(0, 0)
