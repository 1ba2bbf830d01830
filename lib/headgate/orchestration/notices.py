"""Notices of a run as events of Prefect, for automations."""

from __future__ import annotations

from prefect.events import emit_event

from headgate.telemetry import Notice


def emit_notice(notice: Notice) -> None:
    """Emit an event `headgate.KIND` about the resource `headgate.SUBJECT`, its payload the notice's fields and text."""
    resource = {
        "prefect.resource.id": "headgate." + notice.subject.replace("/", "."),
        "prefect.resource.name": notice.subject.partition("/")[2],
    }
    emit_event(f"headgate.{notice.kind}", resource, payload={**notice.fields, "text": notice.text})
