"""Who gets a slot and who has to give one back: the law of shares, over any arrivals and holds."""

from __future__ import annotations

import asyncio
import threading
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.environments.shares import FairSlots, Hold, SharedSlots

PATIENCE_S = 1.0

ASKED = st.tuples(st.sampled_from("abcdef"), st.floats(0, 5), st.floats(0.1, 500))
"""A model, how long after the one before it asks, and for how long it would hold."""


class Simulated:
    """Slots in virtual time whose holders give back when they are done, or at once when they are asked to."""

    def __init__(self, size: int, **rules: float) -> None:
        self.slots = SharedSlots(size, **rules)
        self.now = 0.0
        self.ends: dict[Hold, float] = {}
        self.waiting: dict[Hold, float] = {}
        self.lasts: dict[Hold, float] = {}
        self.below_since: dict[str, float] = {}
        self.longest_below = 0.0

    def ask(self, model: str, lasts_s: float) -> Hold:
        hold = Hold(model)
        self.slots.ask(hold, self.now)
        self.waiting[hold], self.lasts[hold] = self.now, lasts_s
        self.decide()
        return hold

    def run_until(self, then: float) -> None:
        while True:
            due = min(self.ends.values(), default=inf)
            look_at = self.decide()
            at = min(due, look_at)
            if at > then:
                break
            self.now = max(self.now, at)
            for hold in [hold for hold, end in self.ends.items() if end <= self.now]:
                del self.ends[hold]
                self.slots.leave(hold, self.now)
            self.decide()
        self.now = max(self.now, min(then, 1e12))
        self.decide()

    def decide(self) -> float:
        while True:
            for hold in self.slots.grant(self.now):
                self.ends[hold] = self.now + self.lasts[hold]
                del self.waiting[hold]
            wanted, look_at = self.slots.reclaim(self.now)
            for hold in wanted:  # what it did is done again: it is in line anew
                del self.ends[hold]
                self.slots.leave(hold, self.now)
                again = Hold(hold.model)
                self.slots.ask(again, self.now)
                self.waiting[again], self.lasts[again] = self.now, self.lasts[hold]
            if not wanted:
                self.watch()
                return inf if look_at is None else look_at

    def watch(self) -> None:
        """Note how long any model has waited below its share while another had more than its own."""
        held = {model: sum(hold.model == model for hold in self.ends) for model in "abcdef"}
        someone_above = any(count > self.slots.share for count in held.values())
        for model, count in held.items():
            waits = any(hold.model == model for hold in self.waiting)
            if waits and count < self.slots.share and someone_above:
                since = self.below_since.setdefault(model, self.now)
                self.longest_below = max(self.longest_below, self.now - since)
            else:
                self.below_since.pop(model, None)


@given(size=st.integers(1, 8), reserve=st.integers(0, 2), asked=st.lists(ASKED, max_size=40))
def test_no_model_waits_below_its_share_for_longer_than_patience_while_another_has_more(size, reserve, asked):
    world = Simulated(size, patience_s=PATIENCE_S, reserve=reserve)
    for model, after_s, lasts_s in asked:
        world.run_until(world.now + after_s)
        world.ask(model, lasts_s)
    world.run_until(1e9)
    assert world.longest_below <= PATIENCE_S
    assert not world.waiting, "everybody came to an end"
    assert world.slots.free == size


@given(models=st.integers(2, 6), size=st.integers(1, 5), asked=st.integers(1, 4))
def test_with_more_models_than_slots_everybody_has_a_turn(models, size, asked):
    world = Simulated(size, patience_s=PATIENCE_S, turn_s=10.0)
    firsts = [world.ask(model, inf) for _ in range(asked) for model in "abcdef"[:models]][:models]
    seen = set()
    for _ in range(2 * models):
        seen |= {hold.model for hold in world.ends}
        world.run_until(world.now + 10.0 + PATIENCE_S)
    assert seen == {hold.model for hold in firsts}


def test_a_model_alone_has_all_slots_and_beside_another_half_of_them_at_once():
    world = Simulated(4, reserve=1)
    for _ in range(9):
        world.ask("a", inf)
    assert len(world.ends) == 4
    for _ in range(3):
        world.ask("b", inf)
    assert sorted(hold.model for hold in world.ends) == ["a", "a", "b", "b"]


def test_one_is_left_free_for_a_model_that_comes_while_two_are_there():
    world = Simulated(6, reserve=1)
    world.ask("b", inf)
    for _ in range(9):
        world.ask("a", inf)
    assert world.slots.free == 1


def test_among_equals_who_held_least_of_late_goes_first_and_what_was_long_ago_is_forgotten():
    world = Simulated(1)
    world.ask("a", 20.0)
    b, a = world.ask("b", 1.0), world.ask("a", 1.0)
    world.run_until(20.0)
    assert list(world.ends) == [b]
    world.run_until(21.0)
    assert list(world.ends) == [a]
    world.run_until(1e4)
    assert not world.slots.is_heavy("a", world.now)


def test_a_model_that_held_more_than_another_active_one_is_heavy_and_no_other():
    world = Simulated(4)
    for _ in range(3):
        world.ask("a", inf)
    world.run_until(10.0)
    assert not world.slots.is_heavy("a", world.now), "it is alone"
    world.ask("b", inf)
    assert (world.slots.is_heavy("a", world.now), world.slots.is_heavy("b", world.now)) == (True, False)


async def taken(slots, model="a"):
    return await slots.take(model, lambda: None)


async def in_line(slots, model="a"):
    task = asyncio.ensure_future(taken(slots, model))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_who_is_cancelled_in_line_leaves_it():
    slots = FairSlots(1)
    first = await taken(slots)
    second, third = await in_line(slots), await in_line(slots)
    await cancelled(second)
    slots.give_back(first)
    slots.give_back(await third)
    slots.give_back(await taken(slots))


async def test_a_slot_that_was_given_to_one_who_is_cancelled_goes_on_to_the_next():
    slots = FairSlots(1)
    first = await taken(slots)
    second, third = await in_line(slots), await in_line(slots)
    slots.give_back(first)
    await cancelled(second)
    slots.give_back(await third)


async def test_giving_back_twice_gives_back_once():
    slots = FairSlots(1)
    first = await taken(slots)
    slots.give_back(first)
    slots.give_back(first)
    second = await taken(slots)
    await cancelled(await in_line(slots))
    slots.give_back(second)


async def test_who_has_more_than_its_share_is_asked_once_patience_is_over_though_nothing_else_happens():
    slots, asked = FairSlots(2, patience_s=0.01), []
    for number in range(2):
        hold = await slots.take("a", lambda number=number: asked.append(number))
    waiting = asyncio.ensure_future(taken(slots, "b"))
    while not asked:  # noqa: ASYNC110 - a timer's thread says so, when it comes to it
        await asyncio.sleep(0)
    assert asked == [1], "the one that was begun last"
    slots.give_back(hold)
    slots.give_back(await waiting)


def test_slots_of_a_loop_that_has_ended_are_free_again():
    slots = FairSlots(1)

    async def left_in_line():
        first = await taken(slots)
        await in_line(slots)
        slots.give_back(first)

    asyncio.run(left_in_line())
    asyncio.run(taken(slots))


async def test_threads_and_loops_share_them():
    slots = FairSlots(1)
    first = await taken(slots)
    others = [threading.Thread(target=lambda: asyncio.run(borrowed(slots))) for _ in range(8)]
    for other in others:
        other.start()
    slots.give_back(first)
    for other in others:
        await asyncio.to_thread(other.join)
    slots.give_back(await taken(slots))


async def borrowed(slots):
    slots.give_back(await taken(slots))
