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

    async def found() -> list[Finding]:
        async def ask() -> Asked:
            return status_document(replace(status, models=models)) | {"controls": None}, {}, 0

        source = Source("run", "http://there", ask)
        await source.poll()
        return [one for one in found_in(source) if "paused" in one.key]

    (one,) = portal.call(found)
    assert (one.severity, one.todo) == (severity, todo)
    assert one.title.endswith("are paused")
