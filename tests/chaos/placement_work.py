"""Work for placement under kills; sent by value, so that workers need not find this file."""

from __future__ import annotations

import sys
import threading

import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Counting:
    """Counts to a number, a hundred a second; keeps its count when it is asked to stop."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.count = 0
        self.asked = threading.Event()

    def run(self) -> int:
        while self.count < self.target and not self.asked.wait(0.01):
            self.count += 1
        return self.count

    def cancel(self, request_id: str) -> int:
        self.asked.set()
        return self.count

    def restore(self, state: int) -> None:
        self.count = state
