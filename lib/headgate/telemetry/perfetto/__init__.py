"""From a file of events to a trace that Perfetto and chrome://tracing open."""

from headgate.telemetry.perfetto.convert import TraceSummary, convert_events

__all__ = ["TraceSummary", "convert_events"]
