"""The settings of what a campaign tells: files of events, traces, health, OpenTelemetry."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

from headgate.config.aliases import own_name


class TelemetrySettings(BaseModel):
    """Where events go beside the log, and how often a campaign reports its health."""

    events_file: str = Field(
        "", validation_alias=own_name("EVENTS_FILE"), description="Write every event to this file as JSON lines."
    )
    trace_file: str = Field(
        "",
        validation_alias=own_name("TRACE_FILE"),
        description="Write a trace for Perfetto to this file when the campaign ends; a name that ends in .gz is "
        "compressed. Without `events_file` its events stay beside it, in a file of its name and `.events.jsonl`.",
    )
    health_interval_s: float = Field(
        5.0,
        gt=0,
        allow_inf_nan=False,
        validation_alias=own_name("HEALTH_INTERVAL_S"),
        description="How often the health of a campaign is an event while a file of events is written.",
    )
    otel_endpoint: str = Field(
        "",
        validation_alias=own_name("OTEL_ENDPOINT"),
        description="Base address of an OpenTelemetry collector (OTLP over HTTP) for spans and metrics. Empty: "
        "OTEL_EXPORTER_OTLP_ENDPOINT, and none without it. Needs the extra `otel`.",
    )

    @field_validator("otel_endpoint")
    @classmethod
    def _is_collector_address(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("otel_endpoint must be an http or https address")
        return value
