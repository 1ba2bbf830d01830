"""A package of a plugin, as its author would write it: well-behaved environments and broken ones.

It is written into a folder of its own, since a child process has to import it by itself.
"""

import asyncio
import contextlib
import ctypes
import math
import os
import subprocess
import sys
import time

from headgate.core import Message
from headgate.core.errors import MissingExtraError, UnknownEnvironmentError
from headgate.environments import Continue, EnvironmentSpec, ForJudge, Score


def right(_reply):
    return Score(1.0, success=True, why="right")


def raises(_reply):
    raise ValueError("boom " * 1_000_000)


def unspeakable(_reply):
    class SilentError(Exception):
        def __str__(self):
            raise RuntimeError

    raise SilentError


def blocks(_reply):
    time.sleep(1_000_000)


def leaks(_reply):
    held = []
    while True:
        held.append(bytearray(b"x") * 1_000_000)


def exits(_reply):
    os._exit(3)


def asks_to_exit(_reply):
    sys.exit(4)


def segfaults(_reply):
    ctypes.string_at(0)


def floods(_reply):
    print("x" * 10_000_000)
    print("the last words", file=sys.stderr)
    os._exit(5)


def prints(_reply):
    print("y" * 10_000_000)
    return right(_reply)


def starts_another(_reply):
    subprocess.Popen(["sleep", "1000000"])
    return right(_reply)


def reads_stdin(_reply):
    return Score(1.0, success=True, why=repr(sys.stdin.read()))


class Foreign:
    def __repr__(self):
        return "foreign"


async def waits(_reply):
    await asyncio.Event().wait()


BEHAVIOURS = {
    "waits": waits,
    "right": right,
    "raises": raises,
    "unspeakable": unspeakable,
    "blocks": blocks,
    "leaks": leaks,
    "exits": exits,
    "asks-to-exit": asks_to_exit,
    "segfaults": segfaults,
    "floods": floods,
    "prints": prints,
    "starts-another": starts_another,
    "reads-stdin": reads_stdin,
    "nan": lambda _: Score(math.nan, success=False, why="nan"),
    "too-high": lambda _: Score(1.01, success=True, why="high"),
    "no-number": lambda _: Score(Foreign(), success=True, why="odd"),
    "no-truth": lambda _: Score(1.0, success="no", why="odd"),
    "quits": lambda _: sys.exit(2),
    "no-reason": lambda _: Score(1.0, success=True, why=7),
    "nothing": lambda _: None,
    "no-message": lambda _: Continue((5,)),
    "no-text": lambda _: Continue((Message("user", b"bytes"),)),
    "no-list": lambda _: Continue(7),
    "wants-judge": lambda _: ForJudge(((Message("user", "judge this"),),)),
    "goes-on": lambda _: Continue((Message("user", "again"),)),
    "surrogates": lambda _: Continue((Message("user", "half \ud800 of one"),)),
    "echo": lambda reply: Score(1.0, success=True, why=reply),
}


OPEN = set()
"""Episodes that were opened and not closed."""


class PlayedEpisode:
    def __init__(self, behaviour, index, seed):
        self.opening = (Message("user", f"task {index} with seed {seed} in process {os.getpid()}"),)
        self.behaviour = behaviour
        OPEN.add(self)

    async def answer(self, reply):
        if reply == "right":
            return right(reply)
        await asyncio.sleep(0)
        answer = self.behaviour(reply)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def close(self):
        await asyncio.sleep(0)
        OPEN.discard(self)


class Remembering(PlayedEpisode):
    """Says all that it has been told; told to block, it does."""

    def __init__(self, *task):
        super().__init__(*task)
        self.opening = (Message("user", "begin"),)
        self.heard = []

    async def answer(self, reply):
        if reply == "block":
            blocks(reply)
        self.heard.append(reply)
        return Continue((Message("user", " ".join(self.heard)),))


class Played:
    def __init__(self, name, behaviour, *, runs_apart=False):
        self.spec = EnvironmentSpec(name, f"it {name}", 10.0, 100, max_rounds=2, runs_apart=runs_apart)
        self.behaviour = behaviour

    async def open(self, index, seed):
        if index == 66:
            self.behaviour("")
        return PlayedEpisode(self.behaviour, index, seed)

    async def baseline(self, kind, index, seed, conversation, rng):
        return f"{kind} {index} {seed} {len(conversation)} {rng.random()}"


class Remembers(Played):
    async def open(self, index, seed):
        return Remembering(right, index, seed)


class Stubborn(Played):
    """It opens, and closes, whether anybody still wants it or not: a call that was sent is not taken back."""

    async def open(self, index, seed):
        episode = await super().open(index, seed)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return episode


class Broken(Played):
    """Every task goes wrong in another way."""

    WAYS = ("raises", "nan", "waits", "nothing", "exits", "blocks")

    async def open(self, index, seed):
        return PlayedEpisode(BEHAVIOURS[self.WAYS[index % len(self.WAYS)]], index, seed)


class Behaviours:
    prefix = "odd"
    summary = "Environments that misbehave, each in its way"
    extra = "odd-extra"

    def names(self):
        return tuple(sorted(f"odd:{name}" for name in (*BEHAVIOURS, "extra", "judged", "no-spec", "unmade")))

    def environment(self, name):
        member = name.partition(":")[2]
        if member == "stubborn":
            return Stubborn(name, right)
        if member == "remembers":
            return Remembers(name, right)
        if member == "counts":
            return Played(name, lambda _: Score(1.0, success=True, why=str(len(OPEN))))
        if member == "judged":
            made = Played(name, right)
            made.spec = EnvironmentSpec(name, "judged", 10.0, 100, needs_judge=True)
            made.judgement = made.verdict = right
            return made
        if member == "no-spec":
            return 7
        if member == "unmade":
            raise ValueError("boom")
        if member == "extra":
            raise MissingExtraError("environment 'odd:extra'", "odd-extra")
        if member not in BEHAVIOURS:
            raise UnknownEnvironmentError(f"environment {name!r} is not in its collection")
        return Played(name, BEHAVIOURS[member])


class CannotStart(Behaviours):
    prefix = "dead"

    def names(self):
        os._exit(9)

    def environment(self, name):
        os._exit(9)


def single_apart():
    return Played("single:apart", lambda _: Score(1.0, success=True, why=str(os.getpid())), runs_apart=True)


def single_broken():
    return Broken("single:broken", right, runs_apart=True)


def single_here():
    return Played("odd:here", right)


def single_judged():
    made = Played("single:judged", right)
    made.spec = EnvironmentSpec("single:judged", "judged", 10.0, 100, needs_judge=True, runs_apart=True)
    made.judgement = made.verdict = right
    return made
