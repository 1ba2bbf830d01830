"""One set of rules for an environment in this process and for the same one in another."""

from __future__ import annotations

import sys

import pytest

from headgate.core import ChatReply, ErrorKind, Message
from headgate.environments import Continue, Score, converse
from headgate.environments.apart import HostedEnvironment


@pytest.fixture(params=["in this process", "in another process"])
def played(request, registry):
    """Makes the environment of a behaviour, in either place."""

    def make(behaviour):
        if request.param == "in another process":
            found = registry.environment(f"odd:{behaviour}")
            assert isinstance(found, HostedEnvironment)
            return found
        import odd_plugin

        return odd_plugin.Played(f"odd:{behaviour}", odd_plugin.BEHAVIOURS[behaviour])

    return make


def saying(*replies):
    said = iter(replies)

    async def chat(messages):
        return ChatReply(next(said))

    return chat


async def test_a_score_reaches_the_result(played):
    result = await converse(played("right"), 3, 7, saying("x"))
    assert (result.score, result.success, result.why, result.error_kind) == (1.0, True, "right", None)
    assert result.messages[0].content.startswith("task 3 with seed 7")


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("raises", "ValueError: boom"),
        ("unspeakable", ""),
        ("nan", "a score must be in [0, 1] (got nan)"),
        ("too-high", "a score must be in [0, 1] (got 1.01)"),
        ("no-number", "a score must be in [0, 1] (got foreign)"),
        ("no-reason", "why must be a sentence (got 7)"),
        ("no-truth", "success must be True or False (got 'no')"),
        ("quits", "SystemExit: 2"),
        ("nothing", "it returned NoneType, not Continue, Score or ForJudge"),
        ("no-message", "it returned 5, not a Message with text"),
        ("no-text", "not a Message with text"),
        ("no-list", "not iterable"),
        ("wants-judge", "it asks for a judge, but its spec does not say needs_judge=True"),
        ("goes-on", "it gave no score after max_rounds=2 replies"),
    ],
)
async def test_what_no_environment_may_do_is_its_error_and_no_score(played, behaviour, says):
    result = await converse(played(behaviour), 0, 0, saying("x", "y"))
    assert (result.score, result.error_kind) == (None, ErrorKind.ENVIRONMENT)
    assert says in result.error


async def test_a_task_that_cannot_be_made_is_the_environments_error(played):
    result = await converse(played("raises"), 66, 0, saying())
    assert (result.score, result.error_kind, result.messages) == (None, ErrorKind.ENVIRONMENT, ())
    assert "ValueError: boom" in result.error


async def test_broken_text_of_an_environment_can_be_stored(played):
    result = await converse(played("surrogates"), 0, 0, saying("x", "right"))
    assert result.score == 1.0
    assert result.messages[2].content == "half \ufffd of one"


async def test_a_reply_of_a_megabyte_arrives_whole(played):
    episode = await played("echo").open(0, 0)
    assert (await episode.answer("é" * 900_000)).why == "é" * 900_000
    await episode.close()


async def test_messages_and_scores_are_of_the_same_types(played):
    episode = await played("goes-on").open(1, 2)
    assert [type(message) for message in episode.opening] == [Message]
    assert await episode.answer("x") == Continue((Message("user", "again"),))
    assert await episode.answer("right") == Score(1.0, success=True, why="right")
    await episode.close()
    await episode.close()


def test_the_plugin_of_a_collection_is_never_imported_here(registry, monkeypatch):
    monkeypatch.delitem(sys.modules, "odd_plugin", raising=False)
    assert registry.environment("odd:right").spec.name == "odd:right"
    assert registry.members("odd")
    assert "odd_plugin" not in sys.modules
