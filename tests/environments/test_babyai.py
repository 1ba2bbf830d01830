"""agentgym:babyai: what is seen, which actions there are, how replies are read, how episodes end."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Message
from headgate.environments import Continue, Score, environment
from headgate_environments.babyai.environment import (
    LEVELS,
    MAX_ROUNDS,
    MAX_STEPS,
    bot_steps,
    chosen_action,
    new_world,
    planned_actions,
)
from headgate_environments.babyai.view import DROP, FORWARD, LEFT, PICK_UP, RIGHT, TOGGLE, View, moved

UNSEEN, EMPTY, WALL, DOOR, KEY, BALL, BOX = 0, 1, 2, 4, 5, 6, 7
RED, GREY = 0, 5


class Image(dict):
    """Seven by seven cells as minigrid encodes them: column from the left, row from the far end."""

    def __missing__(self, cell):
        return (EMPTY, 0, 0)


def view(things=(), carrying=None):
    """A view of a free room with `things` as (ahead, right, kind, colour, state)."""
    image = Image({(right + 3, 6 - ahead): (kind, colour, state) for ahead, right, kind, colour, state in things})
    return View(image, carrying)


def walled(ahead):
    return [(ahead, right, WALL, GREY, 0) for right in range(-3, 4)]


def test_things_are_named_and_counted_from_the_nearest():
    seen = view([(5, 0, BALL, RED, 0), (1, 1, BALL, RED, 0), (2, 0, DOOR, GREY, 1)])
    assert [thing.name for thing in seen.things] == ["red ball 1", "grey closed door 1", "red ball 2"]
    assert [thing.cell for thing in seen.things] == [(1, 1), (2, 0), (5, 0)]


def test_the_text_says_where_things_are_and_ends_with_the_actions():
    seen = view([(2, -1, KEY, GREY, 0), *walled(4)], carrying=("red", "ball"))
    text, _, actions = seen.text().rpartition("\nAvailable actions: ")
    assert text == (
        "You can see: grey key 1 (2 steps ahead, 1 step to the left). There is a wall 4 steps ahead. "
        "You are carrying a red ball."
    )
    assert json.loads(actions) == list(seen.actions)


def test_going_to_a_thing_ends_facing_it():
    steps = view([(3, 2, BALL, RED, 0)]).actions["go to red ball 1"]
    pose = (0, 0, 0)
    for step in steps:
        pose = moved(pose, step)
    assert pose[2] in (0, 1)
    assert {(3, 2)} == {(pose[0] + (1, 0)[pose[2]], pose[1] + (0, 1)[pose[2]])}
    assert len(steps) == 5


def test_a_thing_behind_a_wall_cannot_be_gone_to():
    actions = view([(4, 0, BALL, RED, 0), *walled(2)]).actions
    assert not any("ball" in action for action in actions)


def test_what_is_unseen_is_not_walked_on():
    hidden = [(1, right, UNSEEN, 0, 0) for right in range(-3, 4)]
    assert not any("ball" in action for action in view([(2, 0, BALL, RED, 0), *hidden]).actions)


def test_a_locked_door_needs_the_key_of_its_colour():
    door = [(1, 0, DOOR, RED, 2)]
    action = "toggle and go through red locked door 1"
    assert action not in view(door).actions
    assert action not in view(door, carrying=("grey", "key")).actions
    assert action not in view(door, carrying=("red", "ball")).actions
    assert view(door, carrying=("red", "key")).actions[action] == (TOGGLE, FORWARD, FORWARD)


def test_an_open_door_is_walked_through():
    assert view([(1, 0, DOOR, RED, 0)]).actions["go through red open door 1"] == (FORWARD, FORWARD)


def test_only_empty_hands_pick_up_and_only_full_ones_drop():
    ball = [(2, 0, BALL, RED, 0)]
    assert view(ball).actions["pick up red ball 1"] == (FORWARD, PICK_UP)
    assert "drop" not in view(ball).actions
    full = view(ball, carrying=("grey", "key")).actions
    assert "pick up red ball 1" not in full
    assert full["drop"] == (DROP,)


def test_nothing_is_dropped_on_a_thing():
    assert "drop" not in view([(1, 0, BALL, RED, 0)], carrying=("grey", "key")).actions


def test_a_wall_stops_the_way_forward():
    assert "move forward" not in view(walled(1)).actions


def test_a_box_in_front_can_be_opened():
    assert view([(1, 0, BOX, RED, 0)]).actions["toggle"] == (TOGGLE,)


@given(st.lists(st.sampled_from([LEFT, RIGHT, FORWARD])))
def test_moves_can_be_undone(steps):
    pose = (0, 0, 0)
    for step in steps:
        pose = moved(pose, step)
    for step in reversed(steps):
        if step == FORWARD:
            pose = moved(moved(moved(moved(moved(pose, LEFT), LEFT), FORWARD), LEFT), LEFT)
        else:
            pose = moved(pose, LEFT if step == RIGHT else RIGHT)
    assert pose == (0, 0, 0)


@pytest.mark.parametrize(
    "reply",
    [
        "Thought: near\nAction: go to red ball 1",
        "Thought: near\nAction:\ngo to red ball 1",
        "**Action:** `Go to the red ball 1`.",
        'Action: "go to red ball"',
        "action : GO TO A RED BALL",
        "go to red ball 1",
        "Thought: my action is clear\n- Action: go to red ball 1\nBecause it is near",
    ],
)
def test_actions_are_read_with_tolerance(reply):
    assert chosen_action(reply, view([(3, 0, BALL, RED, 0)])) == ("go to red ball 1", "")


def test_pickup_is_pick_up():
    assert chosen_action("Action: pickup red ball 1", view([(3, 0, BALL, RED, 0)]))[0] == "pick up red ball 1"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Action:",
        "Action: fly",
        "Action: go to red ball 2",
        "Action: turn left\nObservation: made up\nAction: turn left",
        "You should turn left",
        "x" * 1_000_000,
        "Action: " + "turn left " * 100_000,
        "*" * 1_000_000,
        "\ufffd\x00",
    ],
    ids=lambda reply: repr(reply[:20]),
)
def test_what_is_no_action_does_nothing(reply):
    action, problem = chosen_action(reply, view([(3, 0, BALL, RED, 0)]))
    assert action is None
    assert 0 < len(problem) < 300


@given(st.text())
def test_reading_an_action_never_fails(reply):
    chosen_action(reply, view())
    chosen_action(f"Action: {reply}", view())


def test_level_and_seed_follow_the_published_rule():
    assert len(LEVELS) == 40
    assert new_world(1).mission == "go to the red ball"
    first, second = new_world(4), new_world(4 + 40)
    assert first.simulation.room_size == second.simulation.room_size == 8
    assert (first.mission, first.view.text()) != (second.mission, second.view.text())


@pytest.mark.parametrize("level", range(40), ids=lambda level: LEVELS[level])
def test_every_level_opens(level):
    world = new_world(level + 40 * 7)
    assert world.mission
    assert "Available actions" in world.view.text()


async def test_nothing_is_printed_while_worlds_are_made(capfd):
    for index in range(17, 1_000, 40):
        new_world(index)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


async def play(index, *replies):
    episode = await environment("agentgym:babyai").open(index, 0)
    answers = [await episode.answer(reply) for reply in replies]
    await episode.close()
    await episode.close()
    return answers


async def test_a_mission_that_is_accomplished_scores_its_reward():
    (score,) = await play(1, "Action: go to red ball 1")
    assert isinstance(score, Score)
    assert score.success
    assert 0.85 < score.value < 1.0
    assert score.why == "mission accomplished: steps=8 rounds=1"


async def test_an_impossible_action_costs_a_round_and_no_step():
    answer, score = await play(1, "Action: fly", "Action: go to red ball 1")
    assert isinstance(answer, Continue)
    assert "not an action that you can take now" in answer.messages[0].content
    assert score.why == "mission accomplished: steps=8 rounds=2"


@pytest.mark.parametrize("reply", ["", "Action: fly", "Action: turn left", "x" * 1_000_000])
async def test_after_the_last_round_there_is_a_score_of_0(reply):
    answers = await play(1, *[reply] * MAX_ROUNDS)
    assert all(isinstance(answer, Continue) for answer in answers[:-1])
    assert (answers[-1].value, answers[-1].success) == (0.0, False)
    assert "rounds=10" in answers[-1].why


async def test_the_opening_said_back_is_not_an_action():
    episode = await environment("agentgym:babyai").open(1, 0)
    for _ in range(MAX_ROUNDS):
        answer = await episode.answer(episode.opening[0].content)
    assert answer.value == 0.0


async def test_single_steps_are_bounded(monkeypatch):
    monkeypatch.setattr("headgate_environments.babyai.environment.MAX_STEPS", 3)
    (score,) = await play(1, "Action: go to red ball 1")
    assert score.why == "mission not accomplished: steps=3 rounds=1"


async def test_a_mission_that_is_failed_scores_0():
    index = 15 + 40 * 2
    assert new_world(index).mission == "open the green door after you open the red door"
    (score,) = await play(index, "Action: toggle and go through green closed door 1")
    assert (score.value, score.success) == (0.0, False)
    assert score.why.startswith("mission failed")


def test_plans_are_equal_at_every_call_and_hold_actions_that_exist():
    plan = planned_actions(8, MAX_STEPS)
    planned_actions.cache_clear()
    assert planned_actions(8, MAX_STEPS) == plan
    world = new_world(8)
    for action in plan:
        for step in world.view.actions[action]:
            world.step(step)
        world.look()
    assert world.reward > 0


@pytest.mark.parametrize("index", [28 + 40 * 4, 22, 25], ids=["endless search", "bot's bug", "key in a box"])
def test_a_bot_that_is_stuck_gives_the_plan_so_far(index):
    assert isinstance(planned_actions(index, MAX_STEPS), tuple)


@pytest.mark.parametrize("kind", ["random", "greedy", "solver"])
async def test_baselines_answer_any_conversation_with_an_available_action(kind):
    babyai = environment("agentgym:babyai")
    episode = await babyai.open(38, 0)
    conversation = list(episode.opening)
    for _ in range(MAX_ROUNDS):
        reply = await babyai.baseline(kind, 38, 0, conversation, random.Random(1))
        answer = await episode.answer(reply)
        if isinstance(answer, Score):
            break
        assert "not an action" not in answer.messages[0].content
        conversation += [Message("assistant", reply), *answer.messages]
    assert isinstance(answer, Score)


def test_the_tasks_can_be_solved_given_steps_enough():
    for index in range(0, 4_000, 400):
        world = new_world(index)
        bot_steps(world, 400)
        assert world.reward > 0, f"task {index}"
