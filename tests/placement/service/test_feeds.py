"""What is kept of drivers and requests that are gone."""

from __future__ import annotations

from headgate.placement.service.steps import Feeds
from tests.placement.service.conftest import virtual


def test_nothing_is_kept_of_what_is_gone() -> None:
    async def main() -> None:
        feeds = Feeds()
        feeds.note("first", "r")
        feeds.note("second", "r")  # handed over
        feeds.watch("third", ["r"])
        assert await feeds.wait("second", feeds.number, 0.1) == []
        feeds.forget("r")
        assert (feeds._changed, feeds._watchers, feeds._waiting) == ({}, {}, {})

    virtual(main)
