"""Garbage collection around a campaign."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from headgate.run import rare_collections
from tests.conftest import COUNT_LEFT_OUT


@pytest.fixture
def nothing_left_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the collector see everything, as in a program that has not chosen."""
    monkeypatch.setattr(gc, "get_freeze_count", COUNT_LEFT_OUT)
    gc.unfreeze()
    yield
    gc.freeze()


def test_collections_are_rarer_inside_and_as_before_afterwards(nothing_left_out: None) -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_the_program_has_left_out_stays_left_out(nothing_left_out: None) -> None:
    gc.freeze()
    left_out = gc.get_freeze_count()
    with rare_collections():
        assert gc.get_freeze_count() <= left_out
    assert 0 < gc.get_freeze_count() <= left_out


def test_a_campaign_within_another_one_ends_nothing_of_the_outer_one(nothing_left_out: None) -> None:
    with rare_collections():
        with rare_collections():
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_campaigns_that_overlap_leave_it_as_it_was_before_the_first(nothing_left_out: None) -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > before[0]
    assert gc.get_freeze_count() > 0
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
