"""What the broker of places does with a host that has its place and says nothing."""

from __future__ import annotations

from typing import Any

from headgate.run.hosts.broker import Broker


class Silent:
    """A placement whose hosts have their places, and do not answer."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def submit(self, *_: object, **__: object) -> Silent:
        return self

    def wait_running(self, _: float) -> None:
        """It runs."""

    def call(self, _: str) -> Silent:
        return self

    def future(self) -> Silent:
        return self

    def result(self, _: float) -> None:
        raise TimeoutError

    def cancel(self, name: str, _: str) -> None:
        self.cancelled.append(name)


def test_a_host_that_does_not_answer_is_told_of_and_gives_its_place_back(monkeypatch: Any) -> None:
    told: list[dict[str, Any]] = []
    broker, silent = object.__new__(Broker), Silent()
    monkeypatch.setattr(Broker, "_pool", lambda _: silent)
    broker._placement, broker._limits, broker._request = silent, {}, {}  # type: ignore[assignment]
    broker._tell = lambda **what: told.append(what)
    broker._tend("h1")
    assert told == [{"gone": "h1", "why": "TimeoutError: "}]
    assert silent.cancelled == ["h1"]
