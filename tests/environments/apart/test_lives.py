"""How long processes of environments live, and what a caller's loop, thread, cancelling or end has to do with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headgate.environments import converse, end_idle_processes
from headgate.environments.apart import frames


def test_several_event_loops_one_after_another_use_the_same_process(registry, chat):
    known = registry.environment("odd:right")
    results = [asyncio.run(converse(known, 0, 0, chat)) for _ in range(3)]
    assert len({result.messages[0].content for result in results}) == 1


def test_loops_in_several_threads_use_it_at_once(registry, chat, children_of):
    known = registry.environment("odd:right")
    results = []

    async def many():
        return await asyncio.gather(*(converse(known, index, 0, chat) for index in range(20)))

    threads = [threading.Thread(target=lambda: results.extend(asyncio.run(many()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.score for result in results] == [1.0] * 80
    assert {child.load for child in children_of(registry)} == {0}


async def test_episodes_are_spread_over_as_many_processes_as_may_be(registry, children_of):
    known = registry.environment("odd:right")
    episodes = [await known.open(0, 0) for _ in range(4)]
    assert sorted(child.load for child in children_of(registry)) == [2, 2]
    end_idle_processes()
    assert [(await episode.answer("x")).value for episode in episodes] == [1.0] * 4
    for episode in episodes:
        await episode.close()
    assert sorted(child.load for child in children_of(registry)) == [0, 0]


@pytest.fixture(scope="module")
def single(registry_under):
    """A registry whose collection has one process."""
    return registry_under(processes=1)


async def episodes_open_in(registry, chat):
    """Return how many there are in the one process, but for the one that asks."""
    return int((await converse(registry.environment("odd:counts"), 0, 0, chat)).why) - 1


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("behaviour", ["right", "stubborn"])
async def test_an_episode_that_is_cancelled_while_it_opens_is_not_left_open(
    single, chat, children_of, behaviour, steps
):
    known = single.environment(f"odd:{behaviour}")
    opening = asyncio.ensure_future(known.open(0, 0))
    await cancelled_after(opening, steps)
    assert await episodes_open_in(single, chat) == 0
    (child,) = children_of(single)
    assert (child.load, child.is_busy) == (0, False)


@pytest.mark.parametrize("behaviour", ["right", "waits"])
async def test_an_answer_that_is_cancelled_leaves_nothing_when_its_episode_is_closed(
    single, chat, children_of, behaviour
):
    episode = await single.environment(f"odd:{behaviour}").open(0, 0)
    await cancelled_after(asyncio.ensure_future(episode.answer("x")), 1)
    await episode.close()
    assert await episodes_open_in(single, chat) == 0
    (child,) = children_of(single)
    assert (child.load, child.is_busy) == (0, False)


async def test_a_close_that_is_cancelled_is_finished(single, chat, children_of):
    episode = await single.environment("odd:right").open(0, 0)
    await cancelled_after(asyncio.ensure_future(episode.close()), 1)
    assert await episodes_open_in(single, chat) == 0
    (child,) = children_of(single)
    assert child.load == 0


async def cancelled_after(task, steps):
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        opened = await task
        if opened is not None:
            await opened.close()


async def test_no_process_is_left_once_idle_ones_are_ended(single, chat, children_of):
    await converse(single.environment("odd:starts-another"), 0, 0, chat)
    (child,) = children_of(single)
    running = [os.pidfd_open(process) for process in group_of(child.process_id)]
    assert len(running) == 3
    end_idle_processes()
    assert children_of(single) == ()
    assert all(has_ended(process) for process in running)


SCRIPT = """
import asyncio, os, signal, sys
from importlib.metadata import EntryPoint
from headgate.core import ChatReply
from headgate.environments import Registry, converse
from headgate.environments.protocol import COLLECTION_GROUP
from headgate.environments.apart import HOSTS

signal.signal(signal.SIGINT, signal.default_int_handler)  # the background jobs of a shell have none

async def chat(messages):
    return ChatReply("x")

def play(behaviour):
    return asyncio.run(converse(registry.environment(f"odd:{behaviour}"), 0, 0, chat)).messages[0].content

point = EntryPoint("odd", "odd_plugin:Behaviours", COLLECTION_GROUP)
registry = Registry(tuple, collections=lambda: [point])
before = play("right")
for name in sys.argv[1:]:
    if os.fork():
        continue
    play("starts-another")
    (child,) = HOSTS.of(registry._source("odd"), registry._limits).children()
    os.write(1, f"{name} {os.getpid()} {child.process_id}\\n".encode())
    if name == "SIGKILL":
        play("blocks")
    signal.pause()
    sys.exit(1)
for _ in sys.argv[1:]:
    os.wait()
assert play("right") == before, "the forks took our process for theirs"
"""


def test_nothing_outlives_the_process_that_started_it_and_forks_have_processes_of_their_own(plugin):
    endings = ["SIGINT", "SIGTERM", "SIGKILL"]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *endings],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(plugin), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as script:
        for _ in endings:
            ending, parent, child = script.stdout.readline().split()
            running = [os.pidfd_open(process) for process in group_of(int(child))]
            assert len(running) == 3
            os.kill(int(parent), signal.Signals[ending])
            assert all(has_ended(process) for process in running), ending
        assert script.wait(60) == 0


def has_ended(process):
    """Return whether a process, given by a descriptor of it, ends; that takes as long as the machine likes."""
    try:
        return bool(select.select([process], [], [], 60)[0])
    finally:
        os.close(process)


def group_of(leader):
    stats = ((int(path.parent.name), text_of(path)) for path in Path("/proc").glob("[0-9]*/stat"))
    return [process for process, stat in stats if stat.rpartition(")")[2].split()[2:3] == [str(leader)]]


def text_of(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def test_a_process_that_says_more_values_than_a_conversation_has_is_not_believed():
    with pytest.raises(ValueError, match="values are read from one message"):
        frames.unpacked(b"\x81\xa8messages\xdd\x03\x93\x87\x00" + b"\x90" * 60_000_000)
