"""Work for tests; sent by value, so that workers need not find this file."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Doubles:
    def __init__(self, number: int) -> None:
        self.number = number

    def run(self) -> int:
        return 2 * self.number


class Raises:
    def run(self) -> None:
        raise ValueError("no data")


class Counts:
    """Counts until it is told to end; keeps its count when it is stopped."""

    def __init__(self) -> None:
        self.count = 0
        self.began_with = 0
        self.told = threading.Event()

    def run(self) -> tuple[int, int]:
        while not self.told.is_set():
            self.count += 1
            time.sleep(0.001)
        return self.began_with, self.count

    def counted(self) -> int:
        return self.count

    def end(self) -> int:
        self.told.set()
        return self.count


class Keeps(Counts):
    def cancel(self, request_id: str) -> dict[str, Any]:
        self.told.set()
        return {"count": self.count, "request": request_id}

    def restore(self, state: dict[str, Any]) -> None:
        self.count = self.began_with = state["count"]


class Serves:
    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    def greet(self, name: str) -> str:
        return f"{self.greeting} {name}"
