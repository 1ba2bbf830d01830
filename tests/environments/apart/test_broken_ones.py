"""What environments do to their own process harms nobody else, and is told in a sentence."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from headgate.core import ErrorKind, errors
from headgate.environments import converse
from headgate.environments.apart.process import KEPT_BYTES, Printed


async def failure_of(registry, behaviour, chat):
    result = await converse(registry.environment(f"odd:{behaviour}"), 0, 0, chat)
    assert (result.score, result.error_kind) == (None, ErrorKind.ENVIRONMENT)
    assert len(result.error) < 3_000
    return result.error


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("segfaults", "ended in answer: it was ended by SIGSEGV; it printed: "),
        ("floods", "the process of environment 'odd:floods' ended in answer: it exited with status 5; it printed: "),
    ],
)
async def test_an_episode_in_another_process_goes_on_when_one_dies(registry, chat, behaviour, says):
    neighbour = await registry.environment("odd:right").open(0, 0)
    error = await failure_of(registry, behaviour, chat)
    assert says in error
    assert ("the last words" in error) == (behaviour == "floods")
    assert (await neighbour.answer("x")).value == 1.0
    await neighbour.close()
    assert (await converse(registry.environment("odd:right"), 0, 0, chat)).score == 1.0


def test_what_is_printed_while_old_lines_are_forgotten_is_kept(monkeypatch):
    printed, read = Printed(), Printed._tail
    os.write(printed.descriptor, b"x" * 2 * KEPT_BYTES)
    says = [b"\nthe last words"]

    def reads_before_more_is_printed(self):
        tail = read(self)
        os.write(self.descriptor, says.pop() if says else b"")
        return tail

    monkeypatch.setattr(Printed, "_tail", reads_before_more_is_printed)
    printed.trim()
    assert os.fstat(printed.descriptor).st_size < KEPT_BYTES
    assert printed.quoted().endswith("the last words")
    printed.close()


async def test_one_that_waits_for_ever_is_given_up_and_one_that_blocks_is_ended(registry_under, chat, children_of):
    registry = registry_under(processes=1, call_s=1.0)
    neighbour = await registry.environment("odd:goes-on").open(0, 0)
    error = await failure_of(registry, "waits", chat)
    assert "answer of environment 'odd:waits' took longer than environment_call_s=1" in error
    assert (await neighbour.answer("x")).messages[0].content == "again"
    (child,) = children_of(registry)
    error = await failure_of(registry, "blocks", chat)
    assert "answer of environment 'odd:blocks' took longer than environment_call_s=1" in error
    assert await asyncio.to_thread(child.wait, 60)
    with pytest.raises(
        errors.EnvironmentFailedError, match="process of environment 'odd:goes-on' ended in answer: ans"
    ):
        await neighbour.answer("right")
    await neighbour.close()


async def test_one_that_holds_too_much_memory_is_replaced_and_one_that_holds_far_too_much_ended(
    registry_under, chat, children_of
):
    registry = registry_under(processes=1, memory_mib=256)
    episode = await registry.environment("odd:right").open(0, 0)
    (first,) = children_of(registry)
    first._weigh(257)
    leaking = asyncio.ensure_future(failure_of(registry, "leaks", chat))
    assert "it held " in (error := await leaking)
    assert "more than 1.5 times environment_memory_mib=256" in error
    assert (await episode.answer("x")).value == 1.0
    await episode.close()
    assert children_of(registry) == ()
    assert await asyncio.to_thread(first.wait, 60)


async def test_one_that_asks_to_exit_ends_nothing(registry, chat, children_of):
    assert "failed in answer: SystemExit: 4" in await failure_of(registry, "asks-to-exit", chat)
    assert (await converse(registry.environment("odd:right"), 0, 0, chat)).score == 1.0


async def test_what_it_prints_is_neither_a_message_nor_a_hindrance(registry, chat):
    assert (await converse(registry.environment("odd:prints"), 0, 0, chat)).score == 1.0


async def test_a_question_at_the_terminal_finds_the_end_of_the_file(registry, chat):
    assert (await converse(registry.environment("odd:reads-stdin"), 0, 0, chat)).why == "''"


@pytest.mark.parametrize("index", [-1, 100])
async def test_a_task_that_there_is_not_is_refused_with_those_that_there_are(registry, chat, index):
    result = await converse(registry.environment("odd:right"), index, 0, chat)
    assert result.error_kind is ErrorKind.ENVIRONMENT
    assert f"environment 'odd:right' has the tasks 0 to 99 (got {index})" in result.error


async def test_a_package_whose_process_dies_at_once_is_not_started_over_and_over(registry):
    for _ in range(2):
        with pytest.raises(errors.EnvironmentFailedError, match="it exited with status 9"):
            registry.environment("dead:one")
    with pytest.raises(
        errors.EnvironmentFailedError, match=r"'dead' ended 2 times in a row, and none is started for another \d+ s"
    ):
        registry.environment("dead:one")


async def test_a_baseline_answers_from_the_other_process(registry):
    known = registry.environment("odd:right")
    said = [await known.baseline("greedy", 4, 5, (), random.Random(1)) for _ in range(2)]
    assert said[0] == said[1]
    assert said[0].startswith("greedy 4 5 0 0.")
