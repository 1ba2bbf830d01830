"""What the console finds wrong with a campaign, read off what it says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.console.findings import Finding, found_in
from headgate.console.sources import Asked, Source
from headgate.telemetry import status_document
from tests.console import worlds

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from headgate.core.status import CampaignStatus


def _found(portal: BlockingPortal, status: CampaignStatus) -> list[Finding]:
    async def found() -> list[Finding]:
        async def ask() -> Asked:
            return status_document(status) | {"controls": None}, {}, 0

        source = Source("run", "http://there", ask)
        await source.poll()
        return list(found_in(source))

    return portal.call(found)


@pytest.mark.parametrize("what", ["journal", "store"])
def test_a_journal_or_a_store_that_cannot_be_written_is_wrong(portal: BlockingPortal, what: str) -> None:
    problem: dict[str, Any] = {f"{what}_problem": "database or disk is full (/data)"}
    (one,) = [one for one in _found(portal, replace(worlds.large_status(2, 1), **problem)) if "cannot be" in one.title]
    assert (one.severity, one.title, one.holds) == (
        "bad",
        f"main: its {what} cannot be written",
        "database or disk is full (/data)",
    )
    assert "by itself" in one.todo


def test_models_that_get_no_score_are_wrong_although_nothing_pauses_them(portal: BlockingPortal) -> None:
    status = worlds.large_status(3, 1)
    counts = ({"unscored": 9}, {"unscored": 10, "last_error": "HTTP 404: no such model"}, {"unscored": 0})
    models = tuple(replace(model, is_paused=False, **count) for model, count in zip(status.models, counts, strict=True))
    (one,) = [one for one in _found(portal, replace(status, models=models)) if one.key.endswith("unscored")]
    assert one.title == f"{models[1].model} gets no score"
    assert one.holds == f"none of the last 10 samples of {models[1].model} has one; last error: HTTP 404: no such model"


def test_the_error_of_several_paused_models_names_the_one_that_had_it(portal: BlockingPortal) -> None:
    status = worlds.large_status(2, 1)
    paused: dict[str, Any] = {"is_paused": True, "pause_kind": "errors", "last_error": "HTTP 401: wrong key"}
    models = tuple(replace(model, **paused) for model in status.models)
    (one,) = [one for one in _found(portal, replace(status, models=models)) if "paused" in one.key]
    assert one.holds.endswith(f"last error of {models[0].model}: HTTP 401: wrong key")


@pytest.mark.parametrize(
    ("kind", "reason", "severity", "todo"),
    [
        ("errors", "it answered nothing (pause 3)", "bad", "Look at the endpoint; Retry ends the pause at once."),
        ("control", "service errors, says the operator", "warn", "Resume it when it may go on."),
        ("budget", "service errors cost it all", "warn", "Resume it when it may go on."),
    ],
)
def test_what_has_paused_a_model_is_read_off_the_kind_and_not_off_the_words(
    portal: BlockingPortal, kind: str, reason: str, severity: str, todo: str
) -> None:
    status = worlds.large_status(2, 1)
    paused: dict[str, Any] = {"is_paused": True, "pause_kind": kind, "pause_until": None}
    models = tuple(
        replace(model, pause_reason=reason.replace("3", f"{number}"), **paused)
        for number, model in enumerate(status.models)
    )

    (one,) = [one for one in _found(portal, replace(status, models=models)) if "paused" in one.key]
    assert (one.severity, one.todo) == (severity, todo)
    assert one.title.endswith("are paused")
