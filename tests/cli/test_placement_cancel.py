"""`headgate placement cancel` beside a ledger that knows two requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from headgate.core.errors import NotFoundError
from tests.cli.conftest import Command


@pytest.fixture
def taken_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that were taken out; `waits` and `ended` are known."""
    taken: list[str] = []

    def work(request: str) -> SimpleNamespace:
        if request not in {"waits", "ended"}:
            raise NotFoundError(f"There is no request {request!r}", next_step="`headgate placement status` lists them.")

        def cancel(why: str) -> bool:
            assert why == "cancelled"
            taken.append(request)
            return request == "waits"

        return SimpleNamespace(request_id=request, cancel=cancel)

    @contextmanager
    def joined(address: str | None) -> Iterator[SimpleNamespace]:
        del address
        yield SimpleNamespace(work=work)

    monkeypatch.setattr("headgate.cli.placement.admin.joined", joined)
    return taken


def test_requests_are_cancelled_and_those_that_had_ended_are_told(headgate: Command, taken_out: list[str]) -> None:
    said = headgate("placement", "cancel", "waits", "ended")
    assert said.status == 0
    assert said.out.splitlines() == ["waits is cancelled", "ended had already ended"]
    assert headgate("placement", "cancel", "waits", "--json").document == {"waits": True}


def test_an_id_that_is_not_known_is_an_error_and_takes_nothing_out(headgate: Command, taken_out: list[str]) -> None:
    said = headgate("placement", "cancel", "waits", "nobody")
    assert said.status == 2
    assert "There is no request 'nobody'" in said.err
    assert "headgate placement status" in said.err
    assert taken_out == []
