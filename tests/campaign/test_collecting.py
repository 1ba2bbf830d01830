"""Garbage collection around a campaign."""

from __future__ import annotations

import gc

from headgate.campaign import rare_collections


def test_collections_are_rarer_inside_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
