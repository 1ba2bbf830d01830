"""Environments that a node imports by itself: one whose turns take a while, and one whose package it lacks."""

from __future__ import annotations

import time

from headgate.core import Message
from headgate.environments import Continue, EnvironmentSpec, Score

TURNS = 4


class Turns:
    """An episode of `TURNS` turns that keep a processor for 50 ms each."""

    def __init__(self, index):
        self.opening = (Message("user", f"task {index}"),)
        self._left = TURNS

    async def answer(self, reply):
        time.sleep(0.05)  # noqa: ASYNC251 - as a package does that computes
        self._left -= 1
        return Continue((Message("user", f"{self._left} left"),)) if self._left else Score(1.0, success=True, why=reply)

    async def close(self):
        pass


class Slow:
    def __init__(self, name):
        self.spec = EnvironmentSpec(name, "takes turns", 100.0, 10_000, max_rounds=TURNS, runs_apart=True)

    async def open(self, index, seed):
        return Turns(index)

    async def baseline(self, kind, index, seed, conversation, rng):
        return kind


def slow():
    return Slow("hosted:slow")
