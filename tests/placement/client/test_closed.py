"""A connection that was closed."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError

from headgate.placement.cluster.link import LedgerLink
from headgate.placement.errors import LedgerUnreachableError


def test_a_closed_connection_says_so_and_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    link = object.__new__(LedgerLink)
    link.replaced = ""
    monkeypatch.setattr("headgate.placement.cluster.link.ray.is_initialized", lambda: False)
    with pytest.raises(LedgerUnreachableError, match="connection is closed and cannot ask for stats"):
        link.ask("stats")


def test_a_ledger_that_was_ended_is_not_waited_for_when_another_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    died: Future[None] = Future()
    died.set_exception(ActorDiedError())
    ray = SimpleNamespace(get_actor=lambda *_, **__: SimpleNamespace(_actor_id="new"))
    monkeypatch.setattr("headgate.placement.cluster.link.ray", ray)
    monkeypatch.setattr(LedgerLink, "is_connected", True)
    link = object.__new__(LedgerLink)
    link.replaced, link._address, link._cluster, link._probe_at = "", "127.0.0.1:1", "", 0.0
    asked = SimpleNamespace(future=lambda: died)
    link._actor = SimpleNamespace(_actor_id="old", ask=SimpleNamespace(remote=lambda *_: asked))
    with pytest.raises(LedgerUnreachableError, match="was ended"):
        link.ask("stats")


def test_a_head_that_said_nothing_when_the_link_was_made_is_not_taken_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = object.__new__(LedgerLink)
    link.replaced, link._address, link._cluster = "", "127.0.0.1:1", ""
    for found, says in (("", ""), ("one", ""), ("", ""), ("one", ""), ("another", "was restarted")):
        monkeypatch.setattr("headgate.placement.cluster.link.cluster_id", lambda _, found=found: found)
        link._probe_at = 0.0
        link._probe()
        assert says in link.replaced
        assert bool(link.replaced) == bool(says)
